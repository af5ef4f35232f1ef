"""The site that is attacked: broker, aggregator and honest nodes, one of which is slow."""

import asyncio
import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path

import aiomqtt

from laggard_common import wire
from laggard_common.mqtt.settings import MqttSettings, client_arguments
from laggard_common.wire import Envelope, Kind, codec, topics
from laggard_common.wire.schema import Component, Field, Schema
from tests.support.hostile_client import publication
from tests.support.shipped_brokers import Authority, mosquitto, program

SECOND = 1_000_000_000
NODES = tuple(f"oss-{number}" for number in range(1, 7))
SLOW = "oss-6"
FIELDS = ("rd_ios", "rd_sectors", "rd_ms", "wr_ios", "wr_sectors", "wr_ms", "io_ms", "weighted_ms")
OPEN = (
    "listener {port} {host}\nallow_anonymous true\nmax_packet_size 4300000\nmax_queued_messages 1000000\n"
    "max_inflight_messages 1000\n"
)


class Site:
    """In `folder`, by TLS with the shipped mosquitto.conf, or with a broker that lets everyone in.

    `more`: what else stands in aggregator.toml. `host`: where the broker listens. `nodes`: within which the
    honest nodes connect. `broker` and `aggregator`: the processes, while they run.
    """

    broker: "subprocess.Popen[bytes]"
    aggregator: "subprocess.Popen[bytes]"

    def __init__(
        self,
        folder: Path,
        *,
        tls: bool,
        more: str = "",
        host: str = "127.0.0.1",
        nodes: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.folder = folder
        self.tls = tls
        self.host = host
        self._more = more
        self._nodes = nodes
        self.port, self.http = _free_port(), _free_port()
        self.authority = Authority(folder / "ca")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Broker, aggregator and honest nodes while the body runs."""
        broker = self._shipped() if self.tls else self._open()
        (self.folder / "aggregator.toml").write_text(
            f'site = "site"\n{self._mqtt("laggard-aggregator")}[http]\nlisten = "127.0.0.1:{self.http}"\n'
            "[detect]\ninterval_seconds = 1.0\nwindow_samples = 10\nshift_samples = 5\nconfirm = 2\n"
            f"{self._more}"
        )
        command = [sys.executable, "-P", "-m", "laggard_aggregator.cli.daemon", "--config"]
        with ExitStack() as stack:
            self.broker = stack.enter_context(self.process(broker, "mosquitto"))
            self.aggregator = stack.enter_context(
                self.process([*command, str(self.folder / "aggregator.toml")], "aggregator")
            )
            self.until("the aggregator", lambda: self.figures().get("laggard_ready") == 1)
            stack.enter_context(self._honest())
            yield

    def context(self, name: str) -> ssl.SSLContext | None:
        """What a client of that name connects with."""
        return client_arguments(self._settings(name))["tls_context"]

    def figures(self) -> dict[str, float]:
        """The exposition's series that have no labels, and the sums of those that have, by name."""
        return self.watched()[0]

    def watched(self) -> tuple[dict[str, float], int]:
        """These, and how many of the honest servers were in the window that was judged last."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/metrics", timeout=60) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return {}, 0
        found: dict[str, float] = {}
        for line in lines:
            if not line.startswith("#"):
                name = line.partition("{")[0].partition(" ")[0]
                found[name] = found.get(name, 0.0) + float(line.rsplit(" ", 1)[1])
        ours = 'laggard_group_components{group="storage/diskstats'
        live = [line for line in lines if line.startswith(ours) and 'state="live"' in line]
        return found, round(sum(float(line.rsplit(" ", 1)[1]) for line in live))

    def resident_mib(self) -> float:
        """Resident memory of the aggregator, MiB."""
        pages = int(Path(f"/proc/{self.aggregator.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def alarms(self) -> list[str]:
        """The names of those that an alarm stands for."""
        url = f"http://127.0.0.1:{self.http}/api/v1/stragglers"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return [one["name"] for one in json.load(answer)["stragglers"] if one["alarm"]]

    @staticmethod
    def until(what: str, condition: object, seconds: float = 90.0) -> None:
        """Asks four times a second. Ends the bench when the answer does not come."""
        deadline = time.monotonic() + seconds
        while not condition():  # type: ignore[operator]
            if time.monotonic() > deadline:
                raise SystemExit(f"waited {seconds:.0f} s for {what}")
            time.sleep(0.25)

    def _shipped(self) -> list[str]:
        self.authority.begin(self.host, [*NODES, "evil", "gone"])
        self.authority.run("revoke", "gone")
        return mosquitto(self.folder, self.authority, self.host, self.port)

    def _open(self) -> list[str]:
        config = self.folder / "mosquitto.conf"
        config.write_text(OPEN.format(port=self.port, host=self.host))
        return [program("mosquitto"), "-c", str(config)]

    def _settings(self, name: str) -> MqttSettings:
        if not self.tls:
            return MqttSettings(self.host, self.port)
        return self.authority.client(self.host, self.port, name)

    def _mqtt(self, name: str) -> str:
        s = self._settings(name)
        files = (
            f'ca_file = "{s.ca_file}"\ncert_file = "{s.cert_file}"\nkey_file = "{s.key_file}"\n'
            if self.tls
            else ""
        )
        return f'[mqtt]\nhost = "{s.host}"\nport = {s.port}\n{files}'

    @contextlib.contextmanager
    def process(self, command: list[str], name: str) -> Iterator["subprocess.Popen[bytes]"]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @contextlib.contextmanager
    def _honest(self) -> Iterator[None]:
        stop = threading.Event()

        def play() -> None:
            with self._nodes():
                asyncio.run(self._play(stop))

        thread = threading.Thread(target=play)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(30)

    async def _play(self, stop: threading.Event) -> None:
        """One sample a second of each honest node, by a connection of its own, at QoS 1."""
        async with contextlib.AsyncExitStack() as stack:
            links = {}
            for node in NODES:
                made = aiomqtt.Client(**client_arguments(self._settings(node)), identifier=node, timeout=60)
                links[node] = await stack.enter_async_context(made)
                topic = topics.schema_topic("site", "storage", node, "diskstats")
                await links[node].publish(topic, wire.encode_schema(_schema(node)), qos=1, retain=True)
            start = time.time_ns() // SECOND
            for at in range(86_400):
                await asyncio.sleep(max(start + at + 1 - time.time(), 0))
                if stop.is_set():
                    return
                await asyncio.gather(
                    *(
                        link.publish(
                            topics.data_topic("site", "storage", node, "diskstats"),
                            wire.encode_envelope(_batch(node, at, (start + at) * SECOND)),
                            qos=1,
                        )
                        for node, link in links.items()
                    )
                )


def _schema(node: str) -> Schema:
    fields = tuple(Field(name) for name in FIELDS)
    return Schema(node, "diskstats", b"h" * 16, 1, SECOND, 1, fields, (Component("wwn", "sda"),))


def batches_of(node: str, second: int) -> Iterator[bytes]:
    """A schema and then batches without end, all of one second, as a node with a certificate may send."""
    yield wire.encode_schema(_schema(node))
    made = _batch(SLOW, 0, second * SECOND)
    for seq in count():
        yield wire.encode_envelope(replace(made, node=node, seq=seq))


def publications_of(node: str) -> Iterator[bytes]:
    """The same as packets, of now."""
    payloads = batches_of(node, time.time_ns() // SECOND)
    yield publication(topics.schema_topic("site", "compute", node, "diskstats"), next(payloads))
    topic = topics.data_topic("site", "compute", node, "diskstats")
    for payload in payloads:
        yield publication(topic, payload)


def _batch(node: str, seq: int, t_ns: int) -> Envelope:
    """A hundred reads a second, of 5 ms give or take; eighteen of 50 ms on the slow node."""
    t = seq + 1
    reads, ms = (18, 900) if node == SLOW else (100, 500)
    busy_ms = ms * t + t * (17 * NODES.index(node) + 29) % 60
    rows = [[[reads * t, 128 * reads * t, busy_ms, 0, 0, 0, busy_ms, busy_ms]]]
    payload = codec.Encoder().encode([0], rows, [0])
    return Envelope(
        Kind.COUNTERS, node, "diskstats", b"h" * 16, seq, 1, t_ns, 0, 1, codec.DELTA_ZSTD, payload
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
