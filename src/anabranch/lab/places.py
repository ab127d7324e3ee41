"""Real places with real round-trip times between them, for demonstrations that need no file.

The numbers are medians that Microsoft measured between regions of Azure over the 30 days before 9 April 2024:
East US, Brazil South, North Europe, Germany West Central, Southeast Asia, Japan East, Australia East.
Source: "Azure network round-trip latency statistics", in the documentation of Azure (CC BY 4.0).
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.topology import Topology

PLACES = ("virginia", "saopaulo", "dublin", "frankfurt", "singapore", "tokyo", "sydney")

RTT_MS = (
    # from each place to: virginia, saopaulo, dublin, frankfurt, singapore, tokyo, sydney
    (0, 117, 68, 88, 223, 157, 202),
    (118, 0, 171, 193, 340, 281, 310),
    (70, 171, 0, 26, 166, 234, 252),
    (90, 192, 26, 0, 156, 224, 243),
    (227, 343, 165, 156, 0, 72, 90),
    (158, 280, 232, 223, 71, 0, 103),
    (204, 311, 252, 243, 90, 103, 0),
)


def world(names: Sequence[str] = PLACES) -> Topology:
    """These of the places, and the links between them.

    >>> world(["dublin", "tokyo"]).delay_at("dublin", "tokyo", 0)
    117000
    """
    return Topology.from_rtt(RTT_MS, PLACES).subset(names)
