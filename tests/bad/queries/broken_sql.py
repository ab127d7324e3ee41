import anabranch as ab

q = ab.Query("netwatch")
load = q.source("load", "host string, load double")
rtt = q.source("rtt", "host string, peer string, ms double")
q.output("alerts", load.where("load > "))
