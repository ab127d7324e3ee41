import anabranch as ab

q = ab.Query("netwatch")
load = q.source("load", "host string, load double")
rtt = q.source("rtt", "host string, peer string, ms double")
other = ab.Query("other").source("load", "host string, load double")
q.output("alerts", load.union(other))
