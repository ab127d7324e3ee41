import anabranch as ab

q = ab.Query("netwatch")
load = q.source("load", "host string, load double")
rtt = q.source("rtt", "host string, peer string, ms double")
other = q.source("other", "host bigint")
q.output("alerts", load.join(other, on="host", within="1 s"))
