"""The flow model: delivery times as min-plus and max-plus algebra over numpy arrays, without events.

It shares nothing with the protocols but the topology's delays, the ids and the ideal run: it is their check.
"""

from anabranch.sim.flow.entrance import FlowError
from anabranch.sim.flow.model import flow

__all__ = ["FlowError", "flow"]
