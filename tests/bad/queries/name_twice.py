import anabranch as ab

q = ab.Query("netwatch")
load = q.source("load", "host string, load double")
rtt = q.source("rtt", "host string, peer string, ms double")
load.where("load > 1", name="busy")
q.output("alerts", load.where("load > 2", name="busy"))
