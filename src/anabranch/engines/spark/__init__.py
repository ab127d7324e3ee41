"""The Spark engine: the engine of every real site, in a process of its own.

Spark reads the ingress logs of the site itself and hands what it computes to the site's agent
(:mod:`anabranch.log.handover`). Spark's Python workers import modules of this package on their way to work,
so what they need imports little.
"""
