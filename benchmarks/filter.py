"""The duplicate filter beside a Python set and Polars, as `anabranch bench filter --json` prints."""

import json

from anabranch.lab.bench_filter import measure

if __name__ == "__main__":
    print(json.dumps(measure()))
