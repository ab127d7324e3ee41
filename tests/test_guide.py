"""The files that the guides show are files that the readers take."""

import re
from pathlib import Path

from anabranch.engines.spark.session import _JAVA
from anabranch.plan import Plan
from anabranch.sim.faults import Crash, Cut, load_faults
from anabranch.site.config import Spark
from anabranch.site.places import LiveSites
from anabranch.topology import Topology

GUIDES = Path(__file__).parents[1] / "docs" / "guides"


def blocks(guide: str) -> list[str]:
    """The files in TOML that a guide shows."""
    return re.findall(r"^```toml\n(.*?)^```", (GUIDES / guide).read_text("utf-8"), re.DOTALL | re.MULTILINE)


def test_the_examples_of_the_guide_to_files(tmp_path: Path) -> None:
    network, measured, plan, faults = blocks("topologies.md")
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


def live(path: Path, text: str) -> LiveSites:
    path.write_text(text)
    return LiveSites.load(path).check()


def test_the_sites_file_of_the_guide_to_deployment(tmp_path: Path) -> None:
    (text,) = blocks("deployment.md")
    places = live(tmp_path / "sites.toml", text).places
    assert places["paris"].spark == Spark(memory="1g")
    assert places["tokyo"].spark is not None
    assert places["tokyo"].spark.master == "spark://10.1.0.5:7077"
    assert places["ohio"].spark is None


def test_what_the_guide_to_tuning_writes_into_a_sites_file(tmp_path: Path) -> None:
    settings, java = blocks("tuning.md")
    sites = "".join(f"[sites.{name}]\nport = {port}\n" for name, port in (("paris", 4001), ("tokyo", 4002)))
    places = live(tmp_path / "sites.toml", f'{settings}{sites}[network]\ndelay = "1 ms"\n').places
    assert places["paris"].spark == Spark("local[2]", "1g", 2, trigger=0.5)
    assert places["tokyo"].spark == Spark(memory="1g", trigger=0.5)
    text = f'[live]\nengine = "spark"\n{java}{sites}[network]\ndelay = "1 ms"\n'
    spark = live(tmp_path / "sites.toml", text).places["tokyo"].spark
    assert spark is not None
    # All that a session gives Java by itself is said again, but for what the guide says is left out.
    said = spark.conf["spark.driver.extraJavaOptions"].split()
    assert said == [option for option in _JAVA if option != "-XX:TieredStopAtLevel=1"]
