"""The brokers as they are shipped, with certificates of the shipped script: who is let in, and to what."""

import asyncio
import shutil
import ssl
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from laggard_common import wire
from laggard_common.mqtt.settings import MqttSettings, client_arguments
from tests.support import shipped_brokers as brokers
from tests.support.hostile_client import connected, monster
from tests.support.ports import free_port, is_listening
from tests.support.processes import end, get_json, get_text, run_command, running
from tests.support.shipped_brokers import Authority
from tests.support.wait import LIMIT_SECONDS, time_limit, wait_until

PYTHON = [sys.executable, "-P", "-m"]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl"),
]


@dataclass(frozen=True)
class Site:
    """A broker and the authority that it trusts."""

    folder: Path
    port: int

    def arguments(self, name: str, *, of: Path | None = None) -> Any:
        """What a client of that name connects with."""
        ca, issuer = self.folder / "ca", of or self.folder / "ca"
        return client_arguments(
            MqttSettings(
                host="localhost",
                port=self.port,
                ca_file=ca / "ca.pem",
                cert_file=issuer / "issued" / f"{name}.pem",
                key_file=issuer / "issued" / f"{name}.key",
            )
        )

    def client(self, name: str, **rest: Any) -> aiomqtt.Client:
        """A client with the certificate of that name."""
        return aiomqtt.Client(**self.arguments(name), identifier=name, timeout=LIMIT_SECONDS, **rest)

    def mqtt_table(self, name: str) -> str:
        """The section of either daemon's configuration."""
        issued = self.folder / "ca" / "issued" / name
        return (
            f'[mqtt]\nhost = "localhost"\nport = {self.port}\nca_file = "{self.folder}/ca/ca.pem"\n'
            f'cert_file = "{issued}.pem"\nkey_file = "{issued}.key"\n'
        )


@pytest.fixture(scope="module", params=["mosquitto", "nats", "embedded"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The shipped configuration, in folders and on a port of our own."""
    folder = tmp_path_factory.mktemp(request.param)
    authority = Authority(folder / "ca")
    authority.begin("localhost", ["oss-1", "oss-2", "gone-1"])
    authority.run("aggregator", "laggard-aggregator-2")
    authority.run("revoke", "gone-1")
    here = Site(folder, free_port())
    if request.param == "embedded":
        command = embedded(here)
    else:
        program("nats-server" if request.param == "nats" else "mosquitto")
        make = brokers.nats if request.param == "nats" else partial(brokers.mosquitto, site="site")
        command = make(folder, authority, "127.0.0.1", here.port)
    with running(command, folder / "broker.log"):
        wait_until(lambda: is_listening(here.port), "the broker to listen")
        yield here


def embedded(site: Site) -> list[str]:
    """The command that starts an aggregator, which hosts the broker."""
    (site.folder / "host.toml").write_text(
        f'site = "site"\n{site.mqtt_table("laggard-broker")}crl_file = "{site.folder}/ca/crl.pem"\n'
        f'embedded = true\n[http]\nlisten = "127.0.0.1:0"\n'
    )
    return [*PYTHON, "laggard_aggregator.cli.daemon", "--config", str(site.folder / "host.toml")]


def program(name: str) -> str:
    """Where it is, or a skip."""
    found = shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if found is None:
        pytest.skip(f"needs {name}")
    return found


def is_refused(port: int, context: ssl.SSLContext | None) -> bool:
    """Whether the broker ends the connection instead of letting `oss-1` in."""
    try:
        connected(port, "oss-1", context).close()
    except TimeoutError:
        raise
    except OSError:
        return True
    return False


def test_who_is_not_let_in(site: Site, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    Authority(stranger).run("init", "elsewhere")
    Authority(stranger).run("node", "oss-1")
    cases = {
        "no TLS": None,
        "no certificate": ssl.create_default_context(cafile=str(site.folder / "ca" / "ca.pem")),
        "another authority's": site.arguments("oss-1", of=stranger)["tls_context"],
        "revoked": site.arguments("gone-1")["tls_context"],
        "expired": expire(site, tmp_path),
        "its own": site.arguments("oss-1")["tls_context"],
    }
    let_in = [case for case, context in cases.items() if not is_refused(site.port, context)]
    assert let_in == ["its own"]


def expire(site: Site, folder: Path) -> ssl.SSLContext:
    """A context with a certificate of the site's own authority that was valid until yesterday."""
    ca = site.folder / "ca"
    key, request, cert = (folder / name for name in ("old.key", "old.csr", "old.pem"))
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key)
    openssl("req", "-new", *new_key, "-subj", "/CN=oss-2", "-out", request)
    validity = ("-startdate", "20200101000000Z", "-enddate", "20200201000000Z")
    config = ("-config", ca / "openssl.cnf", "-extensions", "client")
    openssl("ca", "-batch", "-notext", *config, *validity, "-in", request, "-out", cert)
    context = ssl.create_default_context(cafile=str(ca / "ca.pem"))
    context.load_cert_chain(cert, key)
    return context


def openssl(*arguments: object) -> None:
    """Runs openssl."""
    run_command(["openssl", *map(str, arguments)])


def test_a_node_writes_its_own_topics_only(site: Site) -> None:
    mine = "laggard/1/site/storage/oss-1"
    allowed = [f"{mine}/data/diskstats", f"{mine}/schema/diskstats", f"{mine}/status"]
    others = [
        "laggard/1/site/storage/oss-2/data/diskstats",
        "laggard/1/site/storage/oss-2/status",
        "laggard/1/site/ack/oss-1",
        "laggard/1/site/ack/oss-2",
        f"{mine}/data/a/b",
        f"{mine}/other",
        "elsewhere",
    ]
    if (site.folder / "acl").exists():  # mosquitto's names the site
        others.append("laggard/1/other/storage/oss-1/status")

    async def what_arrives() -> set[str]:
        seen = set()
        async with site.client("laggard-aggregator") as aggregator, site.client("oss-1") as node:
            filters = [f"laggard/1/+/+/+/{channel}" for channel in ("data/+", "schema/+", "status")]
            await aggregator.subscribe([(one, 1) for one in filters])
            for topic in (*others, *allowed):  # in order: what is allowed comes after what is not
                await node.publish(topic, b"x", qos=1)
            async with time_limit():
                async for message in aggregator.messages:
                    seen.add(message.topic.value)
                    if seen >= set(allowed):
                        return seen
        raise AssertionError

    assert asyncio.run(what_arrives()) == set(allowed)


def test_a_node_reads_its_own_acknowledgements_only(site: Site) -> None:
    async def what_arrives() -> list[str]:
        seen = []
        async with site.client("laggard-aggregator") as aggregator, site.client("oss-1") as node:
            await node.subscribe([("laggard/#", 1), ("#", 1), ("laggard/1/site/ack/oss-1", 1)])
            for name in ("oss-2", "oss-1"):
                await aggregator.publish(f"laggard/1/site/ack/{name}", b"x", qos=1)
            async with time_limit():
                async for message in node.messages:
                    seen.append(message.topic.value)
                    if seen[-1].endswith("oss-1"):
                        return seen
        raise AssertionError

    assert set(asyncio.run(what_arrives())) == {"laggard/1/site/ack/oss-1"}


def test_nobody_ends_the_connection_of_another_by_its_client_id(site: Site) -> None:
    if "nats" in site.folder.name:
        pytest.skip("NATS does not tie client ids to certificates, as its configuration says")

    async def stays() -> None:
        async with site.client("oss-1") as node:
            await node.subscribe("laggard/1/site/ack/oss-1", qos=1)
            hijacker = aiomqtt.Client(**site.arguments("oss-2"), identifier="oss-1", timeout=LIMIT_SECONDS)
            async with hijacker, site.client("laggard-aggregator") as aggregator:
                await aggregator.publish("laggard/1/site/ack/oss-1", b"x", qos=1)
                async with time_limit():
                    async for _ in node.messages:
                        return

    asyncio.run(stays())


def test_a_message_larger_than_any_aggregator_takes_is_cut_off(site: Site) -> None:
    if "nats" in site.folder.name:
        pytest.skip("NATS reads a packet whole before it judges its size")
    context, size = site.arguments("oss-2")["tls_context"], 100_000_000
    with connected(site.port, "oss-2", context) as link:
        assert monster(link, "laggard/1/site/storage/oss-2/data/diskstats", size) < size
    with connected(site.port, "oss-2", context):
        pass  # and the broker is there still


def test_agent_and_aggregator_meet_over_tls(site: Site, tmp_path: Path) -> None:
    http = free_port()
    (tmp_path / "aggregator.toml").write_text(
        f'site = "site"\n{site.mqtt_table("laggard-aggregator")}[http]\nlisten = "127.0.0.1:{http}"\n'
    )
    (tmp_path / "agent.toml").write_text(
        'node = "oss-1"\ninterval_seconds = 0.1\nbatch_samples = 4\ncollectors = ["host"]\n'
        f'{site.mqtt_table("oss-1")}[spool]\ndirectory = "{tmp_path}/spool"\n'
    )
    aggregator = [*PYTHON, "laggard_aggregator.cli.daemon", "--config", str(tmp_path / "aggregator.toml")]
    agent = [*PYTHON, "laggard_agent", "--config", str(tmp_path / "agent.toml")]
    with (
        running(aggregator, tmp_path / "aggregator.log") as judge,
        running(agent, tmp_path / "agent.log") as sampler,
    ):
        wait_until(lambda: get_json(f"http://127.0.0.1:{http}/readyz"), "the aggregator to be ready")
        wait_until(lambda: samples_taken(http) >= 80, "eighty samples")
        assert end(sampler) == 0
        assert asyncio.run(last_status(site))["acknowledged_by"] == "aggregator"
        assert end(judge) == 0


def samples_taken(http: int) -> float:
    """What the aggregator counts."""
    lines = get_text(f"http://127.0.0.1:{http}/metrics").splitlines()
    (taken,) = (line.split()[-1] for line in lines if line.startswith("laggard_samples_total"))
    return float(taken)


async def last_status(site: Site) -> Mapping[str, Any]:
    """What the agent said last, retained by the broker; read as a second aggregator."""
    async with site.client("laggard-aggregator-2") as reader, time_limit():
        await reader.subscribe("laggard/1/site/storage/oss-1/status", qos=1)
        async for message in reader.messages:
            assert isinstance(message.payload, bytes)
            return wire.decode_state(wire.decode_envelope(message.payload).payload)
    raise AssertionError
