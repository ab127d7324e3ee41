"""The figures there are. One module a figure; this is where ``anabranch lab`` finds them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec


class FigureError(ValueError):
    """A figure that cannot be drawn: the sentence says why and what to do."""


class Figure(msgspec.Struct, frozen=True):
    """``draw``: from the picture's path and the directory of measured data to the numbers behind it."""

    about: str
    draw: Callable[[Path, Path], dict[str, Any]]
    files: tuple[str, ...]
    """Of the measured data that it needs."""


def _traces(path: Path, data: Path) -> dict[str, Any]:
    from anabranch.lab.traces import plot  # noqa: PLC0415 - matplotlib is an extra

    return plot(path, data)


FIGURES = {
    "traces": Figure(
        "synthetic round-trip times beside the measured ones they are fitted to",
        _traces,
        ("planetlab_rtt_first9.npz", "seattle_rtt_first344.npz"),
    )
}

DATA = Path("../shared/data")
"""Where measured data are looked for, unless told."""


def draw(name: str, directory: Path, data: Path | None = None) -> tuple[Path, dict[str, Any]]:
    """Draws figure ``name`` as a PNG in ``directory``; returns its path and the numbers behind it."""
    figure = FIGURES.get(name)
    if figure is None:
        raise FigureError(f"there is no figure {name!r}; the figures are {', '.join(FIGURES)}")
    data = data or DATA
    for file in figure.files:
        if not (data / file).is_file():
            raise FigureError(
                f"figure {name!r} needs the measured data {file}, which is not in {data}; "
                "name their directory with --data"
            )
    path = directory / f"{name}.png"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return path, figure.draw(path, data)
    except OSError as error:
        raise FigureError(
            f"{error.filename or path}: {error.strerror or error}; name another directory with --out"
        ) from None
