"""The page ``docs/reference/cli.md``, from the commands themselves; ``make docs`` writes it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer.main

from anabranch.cli.app import app

HEAD = """\
# The command line

Every command has `--help`. With `--json` the last line of standard output is one JSON object. The exit
status is 0 if the command did what it says, 1 if what it checked is not so (a failed audit, a failed run),
2 for bad input, which is told in one sentence on standard error, and 130 if a run was interrupted.

`make docs` writes this page from the commands themselves.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(_section(path, command) for path, command in _commands("anabranch", _root()))])


def _root() -> Any:
    return typer.main.get_command(app)


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """All commands that do something, with the words that call them."""
    for name, child in getattr(command, "commands", {}).items():
        if hasattr(child, "commands"):
            yield from _commands(f"{path} {name}", child)
        else:
            yield f"{path} {name}", child


def _section(path: str, command: Any) -> str:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    words = " ".join([path, *(parameter.metavar or parameter.name.upper() for parameter in arguments)])
    lines = [f"## `{words}`", "", inspect.cleandoc(command.help or ""), ""]
    if arguments or options:
        lines += ["| | | default |", "| --- | --- | --- |"]
        lines += [f"| `{p.metavar or p.name.upper()}` | {p.help} | |" for p in arguments]
        lines += [f"| `{p.opts[0]}` | {p.help} | {_default(p)} |" for p in options]
        lines.append("")
    return "\n".join(lines)


def _default(parameter: Any) -> str:
    value = parameter.default
    return "" if value is None or value is False or value == () or value == [] else f"`{value}`"


if __name__ == "__main__":
    print(page(), end="")
