"""The link emulator: the network between sites that live on one machine.

Real connections through relays on 127.0.0.1, which delay, hold and break them as a topology and a list of
faults say.
"""

from anabranch.site.wan.emulator import InForce, LinkStatus, Wan
from anabranch.site.wan.faults import COMMANDS, Fault, Heal, Reset, check, parse

__all__ = ["COMMANDS", "Fault", "Heal", "InForce", "LinkStatus", "Reset", "Wan", "check", "parse"]
