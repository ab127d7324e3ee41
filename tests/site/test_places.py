"""The sites file of a deployment: read, and refused where it cannot run."""

from pathlib import Path

import msgspec
import pytest

import anabranch as ab
from anabranch.cli.site import configured
from anabranch.site.config import ConfigError, Spark
from anabranch.site.driver import settings_of
from anabranch.site.http.settings import Http, Token
from anabranch.site.places import LiveSites
from anabranch.site.sinks.settings import Parquet, ToSpark
from anabranch.site.sources.settings import Files, FromSpark
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


def test_what_the_file_says_of_spark_reaches_the_driver(tmp_path: Path) -> None:
    conf = {"spark.driver.extraJavaOptions": "-XX:+UseG1GC"}
    said = Spark("local[2]", "2g", 8, 4, 1 << 20, 1.5, "/mnt/checkpoints", conf)
    others = (field for field in msgspec.structs.fields(Spark) if field.name != "conf")
    table = "\n".join(f"{field.name} = {getattr(said, field.name)!r}" for field in others)
    dotted = "\n".join(f'"{name}" = "{value}"' for name, value in conf.items())
    text = f'[live]\nengine = "spark"\n[sites.a.spark]\n{table}\n[sites.a.spark.conf]\n{dotted}\n'
    sites = load(tmp_path, text).check()
    q = ab.Query("watch")
    q.output("all", q.source("load", "host string").where("host = 'a'", name="some"))
    plan = ab.full_mesh(q.graph, {"load": ("a",)}, {"some": ("a",)}, ())
    config = configured(sites, sites.place("a"), q.graph, plan)
    assert config.spark == said
    assert config.checkpoints == said.checkpoints
    given = settings_of(config, said)
    for field in msgspec.structs.fields(Spark):
        if field.name != "checkpoints":
            assert getattr(given, field.name) == getattr(said, field.name)
            assert getattr(said, field.name) != field.default


def test_the_simulator_reads_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "sites.toml"
    path.write_text(FILE)
    assert Topology.load(path).delay_at("paris", "ohio", 0) == 40_000


def test_a_file_that_says_nothing_of_it_is_one_machine(tmp_path: Path) -> None:
    sites = load(tmp_path, "[sites.paris]\n").check()
    assert sites.url("paris") == "nats://127.0.0.1:4222"
    assert sites.place("paris").spark is None


ATTACHED = """\
[network]
delay = "1 ms"

[[live.sources]]
kind = "spark"
source = "load"
format = "kafka"
options = { subscribe = "load", kafka.bootstrap.servers = "broker:9092", failOnDataLoss = true }
select = ["partition", "offset", "timestamp as ts", "cast(value as string) as host"]
id = ["partition", "offset"]
partitions = 2

[[live.sinks]]
kind = "parquet"
application = "alerts@a"
directory = "out"

[sites.a]
port = 4001
spark = { conf = { "spark.jars.packages" = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.0" } }

[[sites.a.sources]]
kind = "files"
source = "rtt"
directory = "in"

[[sites.a.sinks]]
kind = "spark"
application = "all@a"
format = "parquet"
options = { path = "/tables/all/batch={batch}" }
mode = "overwrite"

[sites.b]
port = 4002
"""


def test_sources_and_sinks_are_of_all_sites_or_of_one(tmp_path: Path) -> None:
    sites = load(tmp_path, ATTACHED).check()
    q = ab.Query("watch")
    columns = "host string", "partition"
    load_, rtt = (q.source(name, columns[0], identity=columns[1]) for name in ("load", "rtt"))
    q.output("alerts", load_.where("host = 'a'", name="some"))
    q.output("all", rtt.where("host = 'b'", name="others"))
    subscriptions = (ab.Subscription("alerts@a", "alerts", "a"), ab.Subscription("all@a", "all", "a"))
    replicas = {"some": ("a", "b"), "others": ("a", "b")}
    plan = ab.full_mesh(q.graph, {"load": ("a", "b"), "rtt": ("a",)}, replicas, subscriptions)
    kafka, files = sites.sources_of("a", plan)
    assert sites.sources_of("b", plan) == (kafka,)
    assert isinstance(kafka, FromSpark)
    assert kafka.names == ("0", "1")
    assert kafka.options == {
        "subscribe": "load",
        "kafka.bootstrap.servers": "broker:9092",
        "failOnDataLoss": "true",
    }
    assert files == Files("rtt", str(tmp_path / "in"))
    parquet, spark = sites.sinks_of("a", plan)
    assert parquet == Parquet("alerts@a", str(tmp_path / "out"))
    assert spark == ToSpark("all@a", "parquet", {"path": "/tables/all/batch={batch}"}, "overwrite")
    assert sites.sinks_of("b", plan) == ()
    a = configured(sites, sites.place("a"), q.graph, plan)
    assert a.attaches_spark
    assert a.spark is None
    assert a.driver is not None
    assert "spark.jars.packages" in a.driver.conf
    fewer = ab.full_mesh(q.graph, {"load": ("a", "b"), "rtt": ("a",)}, replicas, subscriptions[:1])
    with pytest.raises(ConfigError, match=r"sites\.toml: sinks: the plan has no application 'all@a'; it has"):
        configured(sites, sites.place("a"), q.graph, fewer)


SPARK = '[[sites.a.sources]]\nkind = "spark"\nsource = "load"\n'
TO_SPARK = '[[sites.a.sinks]]\nkind = "spark"\napplication = "alerts@a"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SPARK, "Object missing required field `format`"),
        (SPARK + 'format = ""\n', "format is empty"),
        (SPARK + 'format = "kafka"\nid = ["a", "b", "c"]\n', "id names 3 columns"),
        (SPARK + 'format = "kafka"\nid = ["file"]\npartitions = 2\n', "need both columns of id"),
        (SPARK + 'format = "kafka"\nid = ["p", "o"]\npartitions = 0\n', "must name at least one"),
        (SPARK + 'format = "kafka"\nid = ["p", "o"]\npartitions = ["x", "x"]\n', "each once"),
        (SPARK + 'format = "kafka"\nid = ["p", "o"]\nbegin = 7\n', "begin is for partitions"),
        (
            SPARK + 'format = "kafka"\nid = ["p", "o"]\npartitions = 2\nbegin = { "7" = 1 }\n',
            "begin names a partition '7'",
        ),
        (SPARK + 'format = "rate"\nevery = 0\n', "every is 0"),
        (SPARK + 'format = "rate"\nfomrat = "x"\n', "fomrat"),
        (SPARK + 'format = "rate"\n' + SPARK + 'format = "rate"\n', "two sources for 'load'"),
        (TO_SPARK + 'format = ""\n', "format is empty"),
        (TO_SPARK + 'format = "parquet"\nmode = "merge"\n', "merge"),
        (TO_SPARK + 'format = "parquet"\nmode = "overwrite"\n', "write {batch} into an option"),
        (TO_SPARK + 'format = "parquet"\nrows = 0\n', "rows is 0"),
        (TO_SPARK + 'format = "parquet"\nevery = -1\n', "every is -1"),
        ('[[sites.a.sources]]\nkind = "kafka"\nsource = "load"\n', "kafka"),
        ('[sites.a]\nhost = "10.0.0.1"\n', "10.0.0.1 is not this machine"),
        ('[sites.a]\nnats = "nats://logs.example.net"\n', "logs.example.net is not this machine"),
        ('[network]\ndelay = "1 ms"\n[sites.a]\n[sites.b]\n', "as that of 'a'"),
        ('[sites.a]\nspark = { memory = "1g" }\n', 'write engine = "spark"'),
        ('[live]\nspark = { memory = "1g" }\n[sites.a]\n', 'write engine = "spark"'),
        ('[sites.a]\nengine = "spark"\nspark = { memry = "1g" }\n', "memry"),
        ('[sites.a]\nengine = "spark"\nspark = { partitions = 0 }\n', "partitions is 0"),
        ('[sites.a]\nengine = "spark"\nspark = { trigger = -0.1 }\n', "trigger is -0.1; write seconds"),
        ('[sites.a]\nengine = "spark"\nspark = { trigger = nan }\n', "trigger is nan; write seconds"),
        ('[sites.a]\nengine = "spark"\nspark = { trigger = 60 }\n', "from 0 to 10"),
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


@pytest.mark.parametrize("line", ['engine = "flink"', 'hots = "x"', "port = true", 'sources = "load"'])
def test_a_field_that_is_none_is_refused_by_the_simulator_too(tmp_path: Path, line: str) -> None:
    with pytest.raises(TopologyError, match="not a topology"):
        load(tmp_path, f"[sites.a]\n{line}\n")
