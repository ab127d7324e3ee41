"""The files that the guide shows are files that the readers take."""

import re
from pathlib import Path

from anabranch.plan import Plan
from anabranch.sim.faults import Crash, Cut, load_faults
from anabranch.topology import Topology

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "topologies.md"
BLOCKS = re.findall(r"```toml\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)


def test_the_examples_of_the_guide(tmp_path):
    network, measured, plan, faults = BLOCKS
    topology = Topology.from_toml(network)
    assert topology.names == ("paris", "tokyo", "lima")
    assert topology.delay_at("tokyo", "paris", 0) == 110_000
    assert topology.delay_at("lima", "paris", 30_000_000) == 115_000
    assert topology.delay_at("paris", "lima", 30_000_000) == 80_000
    assert "rows" in measured
    assert Plan.from_toml(plan).replicas == {"busy": ("paris",)}
    (tmp_path / "faults.toml").write_text(faults)
    assert load_faults(tmp_path / "faults.toml") == (
        Crash("paris", 30.0, 90.0),
        Cut("tokyo", "paris", 40.0, 55.0),
    )
