import anabranch as ab

q = ab.Query("netwatch")
load = q.source("load", "host string, load double")
rtt = q.source("rtt", "host string, peer string, ms double")
per_host = load.aggregate("1 s", by="host", n="count(*)")
q.output("alerts", per_host.top(1, by="n", window="1 s"))
