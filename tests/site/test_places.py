"""The sites file of a deployment: read, and refused where it cannot run."""

from pathlib import Path

import pytest

from anabranch.site.config import ConfigError, Spark
from anabranch.site.http.settings import Http, Token
from anabranch.site.places import LiveSites
from anabranch.topology import Topology, TopologyError

FILE = """\
[network]
delay = "40 ms"

[live]
directory = "data"
engine = "spark"
security = "keys"
spark = { memory = "1g", conf = { "spark.ui.enabled" = true } }

[sites.paris]
host = "paris.example.net"
metrics_port = 9464
http = { port = 8080, tokens = [{ sha256 = "SECRET", outputs = ["alerts"] }] }

[sites.tokyo]
host = "tokyo.example.net"
port = 4333
directory = "/var/lib/tokyo"
spark = { master = "spark://tokyo:7077", partitions = 4 }

[sites.ohio]
engine = "arrow"
nats = "tls://nats.example.net:4444"
"""


SECRET = f"{7:064x}"
"""The hash of one."""


def load(tmp_path: Path, text: str) -> LiveSites:
    path = tmp_path / "sites.toml"
    path.write_text(text.replace("SECRET", SECRET))
    return LiveSites.load(path)


def test_a_site_says_what_is_its_own_and_the_table_the_rest(tmp_path: Path) -> None:
    sites = load(tmp_path, FILE.replace('engine = "arrow"\n', "")).check()
    paris, tokyo, ohio = (sites.place(name) for name in ("paris", "tokyo", "ohio"))
    assert paris.address == ("paris.example.net", 4222)
    assert paris.directory == tmp_path / "data" / "paris"
    assert paris.metrics_port == 9464
    assert paris.http == Http(port=8080, tokens=(Token(SECRET, outputs=("alerts",)),))
    assert paris.spark == Spark(memory="1g", conf={"spark.ui.enabled": "true"})
    assert tokyo.directory == Path("/var/lib/tokyo")
    assert tokyo.spark == Spark("spark://tokyo:7077", "1g", 4, conf={"spark.ui.enabled": "true"})
    assert ohio.address == ("nats.example.net", 4444)
    assert sites.security == tmp_path / "keys"
    assert sites.url("tokyo") == "tls://tokyo.example.net:4333"


def test_the_simulator_reads_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "sites.toml"
    path.write_text(FILE)
    assert Topology.load(path).delay_at("paris", "ohio", 0) == 40_000


def test_a_file_that_says_nothing_of_it_is_one_machine(tmp_path: Path) -> None:
    sites = load(tmp_path, "[sites.paris]\n").check()
    assert sites.url("paris") == "nats://127.0.0.1:4222"
    assert sites.place("paris").spark is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[sites.a]\nhost = "10.0.0.1"\n', "10.0.0.1 is not this machine"),
        ('[sites.a]\nnats = "nats://logs.example.net"\n', "logs.example.net is not this machine"),
        ('[network]\ndelay = "1 ms"\n[sites.a]\n[sites.b]\n', "as that of 'a'"),
        ('[sites.a]\nspark = { memory = "1g" }\n', 'write engine = "spark"'),
        ('[sites.a]\nengine = "spark"\nspark = { memry = "1g" }\n', "memry"),
        ('[sites.a]\nengine = "spark"\nspark = { partitions = 0 }\n', "partitions is 0"),
        ('[sites.a]\nhttp = { host = "0.0.0.0" }\n', "there are no tokens"),
        ("[sites.a]\nport = 70000\n", "ports are from 1 to 65535"),
        ('[sites.a]\nnats = "logs"\n', "write a URL"),
        ('[sites.a]\nnats = "nats://localhost"\nport = 4222\n', "not both"),
    ],
)
def test_what_cannot_run_is_refused_in_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, text).check()
    assert says in str(refused.value)
    assert "site 'a'" in str(refused.value) or "site 'b'" in str(refused.value)


@pytest.mark.parametrize("line", ['engine = "flink"', 'hots = "x"', "port = true"])
def test_a_field_that_is_none_is_refused_by_the_simulator_too(tmp_path: Path, line: str) -> None:
    with pytest.raises(TopologyError, match="not a topology"):
        load(tmp_path, f"[sites.a]\n{line}\n")
