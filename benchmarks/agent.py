"""Rows a second through one agent: branches, duplicate filter, log, fragment, as JSON. ``--profile`` says
where the time goes."""

import sys

from anabranch.lab.bench_agent import main

if __name__ == "__main__":
    main(sys.argv[1:])
