"""Devices, jobs, mounts and nodes that appear once: memory and size of `/metrics` over time.

    python -m bench.churn [--minutes 60] [--components 100000] [--nodes 10000]

A real mosquitto, aggregator (archive and state) and agent; six honest storage servers, one of them slow,
whose alarm must stand all the time. Twenty hosts send, by the agent's own code, components that live half a
minute: a third each are devices of containers, numbers of jobs on an OST, and mounts. Other nodes come once,
with a schema and a batch. The agent's own /proc/diskstats has a new device every second, for half a minute.

Memory: resident, MiB. *known*: components that the aggregator keeps in groups. *refused*: readings of
components beyond its bounds. *unlisted*: silent nodes without series of their own in `/metrics`.
"""

import argparse
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.hostile_clients.site import FIELDS, SECOND, SLOW, Site
from bench.machine import machine
from laggard_agent.collectors.interface import Reading
from laggard_agent.sampling.batcher import Batcher, EncodedBatch
from laggard_common import wire
from laggard_common.wire import Envelope, codec, topics
from laggard_common.wire.schema import Component, Field, Schema
from tests.support.hostile_client import connected, publication

HOSTS = 20
LIVES_SECONDS = 30
BATCH_TICKS = 5
ROWS_EVERY_SECONDS = 60.0
MOST_METRICS_BYTES = 1 << 20
MORE = """\
[archive]
directory = "{folder}/archive"
[state]
directory = "{folder}/state"
"""
SOURCES: dict[str, tuple[Field, ...]] = {
    "diskstats": tuple(map(Field, FIELDS)),
    "lustre_job_ost": tuple(
        map(Field, ("read_bytes_sum", "write_bytes_sum", "read_bytes_samples", "write_bytes_samples"))
    ),
    "lustre_llite": tuple(
        map(Field, ("read_bytes_sum", "read_bytes_samples", "write_bytes_sum", "write_bytes_samples"))
    ),
}
AGENT = """\
site = "site"
node = "churning"
interval_seconds = 1.0
batch_samples = 5
collectors = ["diskstats"]
[mqtt]
host = "127.0.0.1"
port = {port}
[spool]
directory = "{folder}/spool"
"""


class Host:
    """A node whose components live LIVES_SECONDS. `rate`: new ones a second."""

    def __init__(self, number: int, rate: float) -> None:
        self.node = f"host-{number}"
        self.made = 0
        self._source = list(SOURCES)[number % len(SOURCES)]
        self._fields = SOURCES[self._source]
        self._rate = rate
        self._alive: dict[Component, float] = {}
        self._known: tuple[Component, ...] = ()
        self._batcher = Batcher(self._source, SECOND, BATCH_TICKS)
        self._epoch: tuple[int, int] | None = None
        self._stream, self._seq = b"", 0

    def sample(self, tick_s: int, seconds: float) -> Iterator[bytes]:
        """Publications of a tick, `seconds` after the start."""
        while self.made < seconds * self._rate:
            name = f"{self.node}-{self.made}"
            self._alive[Component(name, name)] = seconds
            self.made += 1
        gone = [each for each, since in self._alive.items() if seconds - since > LIVES_SECONDS]
        for component in gone:
            del self._alive[component]
        if tuple(self._alive) != self._known:
            self._known = tuple(self._alive)
        rows = [tuple(100 * round(seconds - since) for _ in self._fields) for since in self._alive.values()]
        if rows:
            reading = Reading(self._source, self._fields, tick_s * SECOND, self._known, rows)
            for batch in self._batcher.add(tick_s * SECOND, reading):
                yield from self._sent(batch)

    def _sent(self, batch: EncodedBatch) -> Iterator[bytes]:
        """A batch, behind its schema where that is new."""
        known = batch.dictionary
        if self._epoch is None or known.generation != self._epoch[0]:
            self._stream, self._seq = f"{self.node}-{known.generation}".encode().ljust(16, b".")[:16], 0
        if self._epoch != (known.generation, known.epoch):
            self._epoch = known.generation, known.epoch
            schema = Schema(
                *(self.node, self._source, self._stream, known.epoch, SECOND, BATCH_TICKS),
                *(known.fields, known.components),
            )
            topic = topics.schema_topic("site", "storage", self.node, self._source)
            yield publication(topic, wire.encode_schema(schema))
        envelope = Envelope(
            *(batch.kind, self.node, self._source, self._stream, self._seq, known.epoch),
            *(batch.t0_ns, batch.dt_ns, batch.n, batch.codec, batch.payload),
        )
        self._seq += 1
        yield publication(
            topics.data_topic("site", "storage", self.node, self._source), wire.encode_envelope(envelope)
        )


def once(number: int, tick_s: int) -> Iterator[bytes]:
    """Publications of a node that comes once."""
    node, fields = f"once-{number}", SOURCES["diskstats"]
    schema = Schema(node, "diskstats", b"o" * 16, 1, SECOND, 1, fields, (Component("wwn", "sda"),))
    yield publication(topics.schema_topic("site", "storage", node, "diskstats"), wire.encode_schema(schema))
    payload = codec.Encoder().encode([0], [[tuple(range(len(fields)))]], [0])
    envelope = Envelope(
        *(wire.Kind.COUNTERS, node, "diskstats", b"o" * 16, 0, 1),
        *(tick_s * SECOND, 0, 1, codec.DELTA_ZSTD, payload),
    )
    yield publication(topics.data_topic("site", "storage", node, "diskstats"), wire.encode_envelope(envelope))


class Devices:
    """A /proc whose `diskstats` has a new device each second, and those of LIVES_SECONDS."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        for name in ("net", "stat", "meminfo", "loadavg", "sys"):
            (root / name).symlink_to(f"/proc/{name}")
        self._number = count()
        self._alive: list[int] = []

    def advance(self) -> None:
        """A second later."""
        self._alive = [*self._alive, next(self._number)][-LIVES_SECONDS:]
        values = " ".join(str(100 * self._alive[-1] + at) for at in range(17))
        lines = (f" 253 {number:7d} dm-{number} {values}\n" for number in self._alive)
        (self.root / "new").write_text("".join(lines))
        (self.root / "new").rename(self.root / "diskstats")


def resident_mib(pid: int) -> float:
    """Resident memory of a process, MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def scraped(http: int, path: str) -> tuple[int, float]:
    """Bytes and seconds of an answer."""
    began = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{http}{path}", timeout=60) as answer:
        size = len(answer.read())
    return size, time.monotonic() - began


def row(site: Site, agent_pid: int, minute: float, made: int, nodes: int) -> bool:
    """Prints a line; whether the alarm stands and `/metrics` is small."""
    figures = site.figures()
    size, seconds = scraped(site.http, "/metrics")
    of_nodes, _ = scraped(site.http, "/metrics/nodes")
    known = figures.get("laggard_group_components", 0)
    alarms = site.alarms()
    print(
        f"| {minute:.0f} | {made:,} | {nodes:,} | {known:,.0f} | {resident_mib(site.aggregator.pid):.0f} "
        f"| {resident_mib(agent_pid):.0f} | {size / 1024:,.0f} KiB, {seconds:.2f} s "
        f"| {of_nodes / 1024:,.0f} KiB "
        f"| {figures.get('laggard_refused_messages_total', 0):,.0f} "
        f"| {figures.get('laggard_unlisted_nodes', 0):,.0f} "
        f"| {figures.get('laggard_window_lag_seconds', 0):.1f} s | {', '.join(alarms)} |",
        flush=True,
    )
    return alarms == [f"{SLOW}/sda"] and size <= MOST_METRICS_BYTES


def churn(
    site: Site, link: socket.socket, devices: Devices, agent_pid: int, options: argparse.Namespace
) -> bool:
    """Sends for as long as told, with a line a minute; whether each of these was right."""
    length = options.minutes * 60.0
    hosts = [Host(number, options.components / HOSTS / length) for number in range(HOSTS)]
    start, nodes, right, due = time.time(), 0, True, 0.0
    while (seconds := time.time() - start) < length:
        tick_s = int(time.time())
        for host in hosts:
            link.sendall(b"".join(host.sample(tick_s, seconds)))
        while nodes < options.nodes * seconds / length:
            link.sendall(b"".join(once(nodes, tick_s)))
            nodes += 1
        devices.advance()
        if seconds >= due:
            due += ROWS_EVERY_SECONDS * max(options.minutes / 20, 1)
            right &= row(site, agent_pid, seconds / 60, sum(host.made for host in hosts), nodes)
        time.sleep(max(tick_s + 1 - time.time(), 0))
    return right & row(site, agent_pid, length / 60, sum(host.made for host in hosts), nodes)


def main() -> int:
    """Prints the table; 1 where the alarm did not stand, or `/metrics` was too large."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--components", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=10_000)
    options = parser.parse_args()
    print(machine("aiomqtt", "msgpack"))
    print(
        "\n| minute | components | nodes | known | aggregator, MiB | agent, MiB | /metrics | /metrics/nodes "
        "| refused | unlisted | lag | alarms |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
        flush=True,
    )
    with TemporaryDirectory() as folder:
        site = Site(Path(folder), tls=False, more=MORE.format(folder=folder))
        with site.running():
            site.until("the alarm", lambda: site.alarms() == [f"{SLOW}/sda"])
            devices = Devices(Path(folder) / "proc")
            devices.advance()
            (Path(folder) / "agent.toml").write_text(AGENT.format(port=site.port, folder=folder))
            command = [sys.executable, "-m", "laggard_agent", "--config", f"{folder}/agent.toml"]
            with site.process([*command, "--procfs", str(devices.root)], "agent") as agent:
                link = connected(site.port, "churn", None, site.host)
                with link:
                    return 0 if churn(site, link, devices, agent.pid, options) else 1


if __name__ == "__main__":
    raise SystemExit(main())
