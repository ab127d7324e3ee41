"""Sites around the globe, and the round-trip times between them when nothing disturbs the network."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

REGIONS = np.array(
    [
        # latitude, longitude, spread in degrees, share of the sites
        (40.0, -77.0, 5.0, 0.25),
        (37.0, -120.0, 4.0, 0.15),
        (42.0, -93.0, 5.0, 0.08),
        (49.0, 7.0, 6.0, 0.30),
        (36.0, 128.0, 8.0, 0.13),
        (-20.0, -48.0, 6.0, 0.04),
        (-35.0, 150.0, 6.0, 0.03),
        (20.0, 78.0, 6.0, 0.02),
    ]
)

EARTH_KM = 6371.0

KM_PER_MS = 100.0
"""Of a round trip: light travels 200 km of fibre in a millisecond, there and back is half of that."""


def places(rng: np.random.Generator, n: int) -> Floats:
    """Latitude and longitude of ``n`` sites, clustered as the sites of real networks are."""
    region = REGIONS[rng.choice(len(REGIONS), n, p=REGIONS[:, 3])]
    drawn: Floats = region[:, :2] + rng.standard_normal((n, 2)) * region[:, 2:3]
    return drawn


def distances(places: Floats) -> Floats:
    """Great-circle distances in kilometres.

    >>> round(float(distances(np.array([[52.5, 13.4], [35.7, 139.7]]))[0, 1]))  # Berlin, Tokyo
    8917
    """
    latitude, longitude = np.radians(places).T
    half = np.sin((latitude[:, None] - latitude) / 2) ** 2
    half += np.cos(latitude[:, None]) * np.cos(latitude) * np.sin((longitude[:, None] - longitude) / 2) ** 2
    return np.asarray(2 * EARTH_KM * np.arcsin(np.sqrt(np.clip(half, 0, 1))))


def round_trips(
    rng: np.random.Generator, places: Floats, inflation: tuple[float, float], access: tuple[float, float]
) -> Floats:
    """Milliseconds: light in fibre, times each pair's inflation by detours, plus the access delay of both
    ends.

    ``inflation`` and ``access`` are the median and the standard deviation of the logarithm.
    """
    n = len(places)
    detour = np.triu(np.exp(rng.standard_normal((n, n)) * inflation[1]) * inflation[0], 1)
    ends = np.exp(rng.standard_normal(n) * access[1]) * access[0]
    out = distances(places) / KM_PER_MS * (detour + detour.T) + ends[:, None] + ends
    np.fill_diagonal(out, 0.0)
    return out
