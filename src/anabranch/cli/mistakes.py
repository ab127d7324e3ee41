"""What a user can get wrong, told in one sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.input_tables import InputError
from anabranch.lab.figures import FigureError
from anabranch.plan import PlanError
from anabranch.sim.faults import FaultError
from anabranch.site.config import ConfigError
from anabranch.sites import TopologyError
from anabranch.types import QueryError


class Mistake(ValueError):
    """Something on the command line that cannot be used: the sentence says what, where and what to do."""


class Interrupted(Exception):
    """Somebody has asked for the end, by SIGINT or SIGTERM; everything has been cleared up."""


INTERRUPTED = 130
EXTRAS = {"matplotlib": "lab", "polars": "bench"}
"""What only some commands need, and the extra that brings it."""

MISTAKES = (Mistake, QueryError, TopologyError, PlanError, FaultError, InputError, FigureError, ConfigError)


@contextmanager
def told() -> Iterator[None]:
    """A mistake becomes a sentence on stderr and exit status 2."""
    try:
        yield
    except MISTAKES as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except Interrupted:
        print("interrupted; nothing is left running", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        advice = f"install it with: pip install 'anabranch[{EXTRAS[package]}]'"
        print(f"this needs {package}, which is not installed; {advice}", file=sys.stderr)
        sys.exit(2)
