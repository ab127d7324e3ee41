"""A live site: the protocols, driven by real clocks, logs, connections and processes."""
