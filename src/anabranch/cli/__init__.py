"""The command ``anabranch``.

Exit status: 0 if it did what it says, 1 if what it checked is not so, 2 for bad input, 130 if a run was
interrupted.
"""

from anabranch.cli.app import app, main

__all__ = ["app", "main"]
