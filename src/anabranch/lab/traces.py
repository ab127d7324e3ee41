"""Synthetic round-trip times beside the measured ones they are fitted to: PlanetLab servers, Seattle devices.

Each measured file meets a generated trace of as many sites and steps, of another seed than any that was
fitted with.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anabranch.rtt import load_rtt
from anabranch.traces import DEVICES, SERVERS, TraceModel, Traces

Floats = npt.NDArray[np.float64]

SEED = 2024


class _Measured(msgspec.Struct, frozen=True):
    file: str
    title: str
    model: TraceModel
    every: float
    """Seconds between slices."""


MEASURED = (
    _Measured("planetlab_rtt_first9.npz", "servers (PlanetLab)", SERVERS, 52_920.0),
    # the file does not say when its slices were taken; this is the pace at which its values move
    _Measured("seattle_rtt_first344.npz", "devices (Seattle)", DEVICES, 16.0),
)


def plot(path: str | Path, data_dir: str | Path) -> dict[str, dict[str, dict[str, float]]]:
    """Writes a PNG of both comparisons and returns their statistics: ``{"servers (PlanetLab)": {"measured":
    ...}}``."""
    figure = Figure(figsize=(17, 8), layout="constrained")
    rows = figure.subplots(2, 4)
    table = {}
    for measured, axes in zip(MEASURED, rows, strict=True):
        real = load_rtt(Path(data_dir) / measured.file)
        names = [str(i) for i in range(real.shape[1])]
        traces = Traces(names, measured.model, every=measured.every, seed=SEED)
        made = traces.rtt(0, len(real)).astype(np.float64)
        pairs = {"measured": _pairs(real), "generated": _pairs(made)}
        for label, values in pairs.items():
            _draw(axes, values, label, measured.every)
        axes[0].set_title(measured.title, loc="left")
        axes[0].legend()
        table[measured.title] = {label: statistics(values) for label, values in pairs.items()}
    figure.savefig(path, format="png", dpi=100, metadata={"Software": None})
    return table


def statistics(values: Floats) -> dict[str, float]:
    """What the two are compared by, of round-trip times as T x pairs, NaN where not measured."""
    variation = _variation(values)
    excess = values / np.nanmedian(values, axis=0)
    named = {f"rtt_ms_p{q:g}": np.nanpercentile(values, q) for q in (5, 25, 50, 75, 95, 99, 99.9)}
    named |= {f"variation_p{q:g}": np.nanpercentile(variation, q) for q in (25, 50, 75, 90, 99)}
    named |= {f"over_median_p{q:g}": np.nanpercentile(excess, q) for q in (75, 90, 99, 99.9)}
    return {name: round(float(value), 4) for name, value in named.items()}


def _pairs(matrix: Floats) -> Floats:
    values = matrix[:, ~np.eye(matrix.shape[1], dtype=bool)]
    return values[:, ~np.isnan(values).all(axis=0)]


def _variation(values: Floats) -> Floats:
    """The coefficient of variation of each pair over time."""
    return np.asarray(np.nanstd(values, axis=0) / np.nanmean(values, axis=0))


def _draw(axes: npt.NDArray[np.object_], values: Floats, label: str, every: float) -> None:
    _distribution(axes[0], values[~np.isnan(values)], label)
    axes[0].set(xscale="log", xlim=(1, 1e5), xlabel="RTT, ms", ylabel="share at or below")
    variation = _variation(values)
    _distribution(axes[1], variation, label)
    axes[1].set(xscale="log", xlim=(1e-4, 20), xlabel="coefficient of variation of a pair over time")
    # the pair whose variation is the median one
    typical = int(np.argsort(variation)[len(variation) // 2])
    axes[2].plot(np.arange(len(values)) * every / 3600, values[:, typical], label=label, lw=1)
    axes[2].set(xlabel="hours", ylabel="RTT of a typical pair, ms")
    ratio = np.sort((values / np.nanmedian(values, axis=0)).ravel())
    ratio = ratio[~np.isnan(ratio)]
    _curve(axes[3], ratio, 1 - np.arange(len(ratio)) / len(ratio), label)
    axes[3].set(
        xscale="log", yscale="log", xlim=(1, 1e3), xlabel="RTT / median of its pair", ylabel="share above"
    )


def _distribution(axes: Axes, values: Floats, label: str) -> None:
    ordered = np.sort(values)
    _curve(axes, ordered, np.arange(1, len(ordered) + 1) / len(ordered), label)


def _curve(axes: Axes, x: Floats, y: Floats, label: str) -> None:
    # a thousand points from the whole range and a thousand from the tail say all that a line can show
    n = len(x)
    chosen = np.unique(
        np.concatenate([np.linspace(0, n - 1, 1000), n - np.geomspace(1, n, 1000)]).astype(int)
    )
    axes.plot(x[chosen], y[chosen], label=label)
