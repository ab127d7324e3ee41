"""Prints how fast the event simulator and the flow model are, as `anabranch bench sim --json`."""

import json

from anabranch.lab.bench_sim import measure

if __name__ == "__main__":
    print(json.dumps(measure()))
