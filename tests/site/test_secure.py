"""Between hosts: the same guarantee, and whoever is not who he says, or wants what is not his, is refused and
counted, and disturbs nobody."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from embedded import assert_ideal, busy_query, loads, run
from http_client import PLAN, lines, post
from test_cluster import SITES, a_plan_comes, a_site_goes_and_comes_back, inputs, plan, query

import anabranch as ab
from anabranch.log import names
from anabranch.log.blocking import Connection as Blocking
from anabranch.log.connection import FAILURES, Access, Connection, Tls, connect
from anabranch.protocols.messages import Heartbeat, PlanOffer
from anabranch.site import keys, wire
from anabranch.site.cluster import Cluster
from anabranch.site.config import ConfigError, check_tls
from anabranch.site.http.settings import Http

INGRESS, EGRESS = names.stream("watch", "in/load"), names.stream("watch", "out/load")


class Attacker:
    """Somebody who can reach the log server of paris, with whatever papers."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.port = cluster.ports["paris"]

    def files(self, name: str) -> Tls:
        """Of a site of the deployment."""
        return keys.of_site(self.cluster.directory / "keys", name)

    def access(self, name: str, tls: Tls | None = None) -> Access:
        url = f"tls://127.0.0.1:{self.port}"
        return Access(url, tls=tls or self.files(name), server="paris", inbox=names.replies(name))

    @contextlib.asynccontextmanager
    async def connected(self, name: str) -> AsyncIterator[Connection]:
        connection = await connect(self.access(name), "attacker", lambda: None)
        try:
            yield connection
        finally:
            await connection.close()

    async def is_refused(self, tls: Tls) -> None:
        with pytest.raises(FAILURES):
            await connect(self.access("tokyo", tls), "attacker", lambda: None)

    async def publish(self, name: str, subject: str, data: bytes, reply: str = "") -> None:
        async with self.connected(name) as connection:
            await connection.client.publish(subject, data, reply)
            await connection.client.flush(5)

    async def says(self, *words: bytes, tls: bool = True) -> None:
        """On a connection of its own, until the server ends it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        await reader.readline()
        with contextlib.suppress(OSError, ssl.SSLError):
            if tls:
                await writer.start_tls(self.files("tokyo").context(), server_hostname="paris")
            for word in words:
                writer.write(word)
                await writer.drain()
            while await reader.read(65536):
                pass
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.wait_closed()


async def another_authority(attacker: Attacker) -> None:
    keys.create(attacker.directory / "theirs", {"tokyo": ["127.0.0.1"]})
    stranger = keys.of_site(attacker.directory / "theirs", "tokyo")
    ours = attacker.files("tokyo")
    await attacker.is_refused(Tls(ours.ca, stranger.certificate, stranger.key))


async def an_expired_certificate(attacker: Attacker) -> None:
    old = keys.of_site(attacker.directory / "old", "tokyo")
    authority = keys.Authority(attacker.cluster.directory / "keys")
    authority.vouch(old, "tokyo", names.user("tokyo"), ["tokyo"], datetime.now(UTC) - timedelta(days=1))
    await attacker.is_refused(old)


async def a_site_that_is_none_of_the_plan(attacker: Attacker) -> None:
    rome = keys.of_site(attacker.directory / "new", "rome")
    keys.Authority(attacker.cluster.directory / "keys").vouch(rome, "rome", names.user("rome"), ["rome"])
    await attacker.is_refused(rome)


async def no_certificate_and_no_encryption(attacker: Attacker) -> None:
    await attacker.says(b'CONNECT {"verbose":false}\r\nPING\r\n', tls=False)


async def a_site_in_the_name_of_another(attacker: Attacker) -> None:
    subject = names.inbox("watch", "paris", "ohio")
    await attacker.publish("tokyo", subject, wire.encode("ohio", Heartbeat((9, "ohio"))))


async def a_name_that_is_not_that_of_the_subject(attacker: Attacker) -> None:
    subject = names.inbox("watch", "paris", "tokyo")
    await attacker.publish("tokyo", subject, wire.encode("ohio", Heartbeat((9, "ohio"))))


async def a_message_that_is_none(attacker: Attacker) -> None:
    await attacker.publish("tokyo", names.inbox("watch", "paris", "tokyo"), b"\x93junk")


async def a_client_with_a_plan(attacker: Attacker) -> None:
    """And none that claims to be a site or the operator gets as far as that."""
    access = attacker.cluster.deployment("paris").access("paris")
    connection = await connect(access, "attacker", lambda: None)
    offer = PlanOffer(plan(99))
    for name in ("eve", "tokyo", names.OPERATOR):
        await connection.client.publish(names.inbox("watch", "paris", name), wire.encode(name, offer))
    await connection.client.flush(5)
    await connection.close()


async def a_tuple_into_the_ingress_log(attacker: Attacker) -> None:
    await attacker.publish("tokyo", names.subject("watch", "in/load"), b"evil")


async def commands_to_the_log(attacker: Attacker) -> None:
    for command in (
        f"STREAM.PURGE.{EGRESS}",
        f"STREAM.DELETE.{EGRESS}",
        f"STREAM.INFO.{INGRESS}",
        f"DIRECT.GET.{INGRESS}",
        f"CONSUMER.CREATE.{EGRESS}",
        f"CONSUMER.CREATE.{INGRESS}",
    ):
        data = {"seq": 1, "stream_name": EGRESS, "config": {"deliver_subject": "log.watch.in.load"}}
        await attacker.publish("tokyo", f"$JS.API.{command}", json.dumps(data).encode())


async def everything_that_is_said(attacker: Attacker) -> None:
    async with attacker.connected("tokyo") as connection:
        for subject in (">", "log.>", names.inbox("watch", "paris"), "_INBOX.>"):
            await connection.client.subscribe(subject)
        await connection.client.flush(5)


async def too_much_at_once(attacker: Attacker) -> None:
    await attacker.says(b"CONNECT {}\r\n", b"PUB status.watch.paris 99000000\r\n")


async def no_protocol(attacker: Attacker) -> None:
    await attacker.says(b"CONNECT {}\r\n", b"GET / HTTP/1.1\r\n\r\n" * 9)


async def nothing_for_a_long_time(attacker: Attacker) -> None:
    await asyncio.gather(*(attacker.says(tls=False) for _ in range(20)), attacker.says())


async def half_a_question(attacker: Attacker) -> None:
    port = (await attacker.cluster.status("paris")).metrics_port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metr")
    await reader.read()
    writer.close()
    await writer.wait_closed()


Attack = Callable[[Attacker], Awaitable[None]]
ATTACKS: dict[Attack, str] = {
    another_authority: "handshake",
    an_expired_certificate: "handshake",
    no_certificate_and_no_encryption: "handshake",
    a_site_that_is_none_of_the_plan: "identity",
    a_site_in_the_name_of_another: "publish",
    a_name_that_is_not_that_of_the_subject: "Rejected",
    a_message_that_is_none: "Rejected",
    a_client_with_a_plan: "Rejected",
    a_tuple_into_the_ingress_log: "publish",
    commands_to_the_log: "publish",
    everything_that_is_said: "subscribe",
    too_much_at_once: "oversized",
    no_protocol: "malformed",
    nothing_for_a_long_time: "slow",
    half_a_question: "http",
}


async def counted(cluster: Cluster, what: str) -> int:
    status = await cluster.status("paris")
    return {**status.events, **status.refused}.get(what, 0)


async def suffer(attacker: Attacker, sign: str) -> None:
    """All attacks of which ``sign`` must tell, one after the other."""
    for attack in (each for each, tells in ATTACKS.items() if tells == sign):
        before = await counted(attacker.cluster, sign)
        await attack(attacker)
        while await counted(attacker.cluster, sign) == before:
            await asyncio.sleep(0.1)


def test_what_is_forbidden_is_refused_and_counted_and_disturbs_nobody(tmp_path: Path) -> None:
    async def work() -> None:
        async with Cluster(query(), SITES, plan(), tmp_path / "sites", secure=True) as cluster:
            collecting = asyncio.create_task(cluster.collect())
            feeding = asyncio.create_task(cluster.feed(inputs()))
            attacker = Attacker(cluster, tmp_path)
            await asyncio.gather(*(suffer(attacker, sign) for sign in set(ATTACKS.values())))
            await feeding
            assert_ideal(query(), inputs(), await collecting, plan())
            status = await cluster.status("paris")
            assert (status.epoch, status.lives) == (1, 1)

    run(work())


def test_nothing_comes_out_of_a_server_but_egress(tmp_path: Path) -> None:
    """Not by asking for it, nor by having an answer sent elsewhere; and a server of another name is none."""

    async def work() -> None:
        async with Cluster(query(), SITES, plan(), tmp_path, secure=True) as cluster:
            attacker = Attacker(cluster, tmp_path)
            await cluster.feed({"load": loads(20, 0.1), "rtt": loads(20, 0.1)})
            own = await connect(attacker.access("paris"), "own", lambda: None)
            gate = names.gate("watch", "paris")
            async with attacker.connected("tokyo") as peer:
                for question in (
                    {"stream": INGRESS},
                    {"stream": EGRESS, "start": -1},
                    {"stream": EGRESS, "deliver_subject": "log.watch.in.load"},
                    [],
                ):
                    reply = await peer.client.request(gate, json.dumps(question).encode(), timeout=5)
                    assert "error" in json.loads(reply.data)
                reply = await peer.client.request(gate, json.dumps({"stream": EGRESS}).encode(), timeout=5)
                assert json.loads(reply.data)["config"]["name"] == EGRESS
                before = await messages(own)
                question = json.dumps({"seq": 1}).encode()
                forged = names.subject("watch", "in/load")
                await peer.client.publish(f"$JS.API.DIRECT.GET.{EGRESS}", question, forged)
                await peer.client.flush(5)
                await peer.client.request(names.status("watch", "paris"), b"", timeout=5)
                assert await messages(own) == before
            await own.close()
            tokyo = f"tls://127.0.0.1:{cluster.ports['tokyo']}"
            misled = Access(tokyo, tls=attacker.files("paris"), server="paris")
            with pytest.raises(FAILURES):
                await connect(misled, "misled", lambda: None)
            # as Spark's processes reach it, which know nothing but the URL
            url = attacker.files("paris").within(attacker.access("paris").url, "paris")
            with contextlib.closing(Blocking(url)) as driver:
                assert driver.extent(EGRESS)[1] == len(list(driver.read(EGRESS, *driver.extent(EGRESS))))
                assert driver.poll(0) is None

    async def messages(own: Connection) -> int:
        reply = await own.client.request(f"$JS.API.STREAM.INFO.{INGRESS}", b"", timeout=5)
        return int(json.loads(reply.data).get("state", {}).get("messages", -1))

    run(work())


def test_sites_that_are_secure_give_the_same_guarantee(tmp_path: Path) -> None:
    async def work() -> None:
        async with Cluster(query(), SITES, plan(), tmp_path, secure=True) as cluster:
            collecting = asyncio.create_task(cluster.collect())
            feeding = asyncio.create_task(cluster.feed(inputs()))
            await asyncio.sleep(1)
            await a_plan_comes(cluster)
            await a_site_goes_and_comes_back(cluster)
            await feeding
            assert_ideal(query(), inputs(), await collecting, plan())

    run(work())


def test_what_comes_in_by_http_is_let_through_too(tmp_path: Path) -> None:
    table = loads(100, 1)
    near = ab.Topology.from_rtt([[0, 10], [10, 0]], ("paris", "tokyo"))

    async def work() -> None:
        async with Cluster(busy_query(), near, PLAN, tmp_path, secure=True, http=Http()) as cluster:
            collecting = asyncio.create_task(cluster.collect())
            port = cluster.http_ports["tokyo"]
            await post(port, lines(table), producer="load", first=0)
            await post(port, b"", producer="load", end=1)
            assert_ideal(busy_query(), {"load": table}, await collecting, PLAN)

    run(work())


def test_keys_are_made_once_renewed_on_request_and_read_by_nobody_else(tmp_path: Path) -> None:
    hosts = {"paris": ["paris.example.net", "10.0.0.7"], "tokyo": ["127.0.0.1"]}
    made = keys.create(tmp_path, hosts)
    assert sorted(path.name for path in made) == ["client", "operator", "paris", "tokyo"]
    paris = keys.of_site(tmp_path, "paris")
    before = paris.certificate.read_bytes()
    names_of = x509.load_pem_x509_certificate(before).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names_of.value.get_values_for_type(x509.DNSName) == ["paris", "paris.example.net"]
    assert [str(ip) for ip in names_of.value.get_values_for_type(x509.IPAddress)] == ["10.0.0.7"]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()} == {0o600}
    assert [path.name for path in keys.create(tmp_path, {**hosts, "lima": []})] == ["lima"]
    assert paris.certificate.read_bytes() == before
    context = paris.context()
    assert paris.context() is context
    authority = (tmp_path / "ca.pem").read_bytes()
    assert len(keys.create(tmp_path, hosts, renew=True)) == 4
    assert paris.certificate.read_bytes() != before
    assert (tmp_path / "ca.pem").read_bytes() == authority
    check_tls(paris)
    assert paris.context() is not context


def test_keys_that_cannot_be_used_are_refused_in_one_sentence(tmp_path: Path) -> None:
    keys.create(tmp_path, {"paris": [], "tokyo": []})
    paris, tokyo = keys.of_site(tmp_path, "paris"), keys.of_site(tmp_path, "tokyo")
    with pytest.raises(ConfigError, match="make them anew"):
        check_tls(Tls(paris.ca, paris.certificate, tokyo.key))
    old = keys.of_site(tmp_path, "old")
    keys.Authority(tmp_path).vouch(old, "old", names.user("old"), [], datetime.now(UTC) - timedelta(days=1))
    with pytest.raises(ConfigError, match="has expired"):
        check_tls(old)
    with pytest.raises(ConfigError, match="anabranch site init"):
        check_tls(keys.of_site(tmp_path, "lima"))
    with pytest.raises(ConfigError, match="capital letters"):
        keys.create(tmp_path, {"paris": [], "Paris": []})
    (tmp_path / "ca.key").write_text("nothing")
    with pytest.raises(ConfigError, match="certificate authority cannot be used"):
        keys.create(tmp_path, {"rome": []})
