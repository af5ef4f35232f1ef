"""A slow OSD of a real Ceph cluster: `python -m bench.ceph_osds`. Needs root, and packages of Debian:
ceph-mon, ceph-osd, ceph-mgr, ceph-common and prometheus (`apt-get install --no-install-recommends`).

One monitor, one manager and six OSDs on loop devices, with writes and reads of `rados bench`. After --healthy
seconds the device of one OSD is throttled to --iops reads and writes a second (blkio, control groups v1);
--iops 0 throttles none. Two ways at once, with windows of three minutes:

- the collector `ceph` samples every second, and the machine judges,
- a real Prometheus server scrapes the manager's module `prometheus` every 15 s, `laggard init` configures an
  aggregator for it, and its daemon judges; `laggard diagnose` looks at it all.

Prints the alarms with their delays and the collector's cost, and for each OSD what the kernel says: how long
its device took for a request (/proc/diskstats, without a throttle's wait) and how long its threads waited for
a CPU. An OSD whose threads have another priority than its peers' is slow on a busy machine. Exits with 1 when
one of both names another OSD, or none.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench.machine import machine
from laggard_agent.collectors.ceph.collector import Ceph, CephSettings
from laggard_agent.collectors.interface import Context, Reading, Roots
from laggard_common import wire
from laggard_common.clock import SystemClock
from laggard_common.wire import Envelope, Kind
from laggard_common.wire.codec import DELTA_ZSTD, Encoder
from laggard_common.wire.schema import Schema
from laggard_common.wire.topics import data_topic, schema_topic
from tests.support.ceph_cluster import PROGRAMS, CephCluster, ceph_cluster, exporter, is_installed
from tests.support.live_scrapes import LiveScrapes, live_scrapes
from tests.support.ports import free_port, is_listening
from tests.support.processes import run_command, running, started
from tests.support.wait import wait_until

OSDS = 6
SLOW = 4
BLKIO = Path("/sys/fs/cgroup/blkio")
DETECT = "[detect]\ninterval_seconds = 15\nwindow_samples = 12\nshift_samples = 6"
DAEMON = (
    sys.executable,
    "-c",
    "import sys; from laggard_aggregator.cli.daemon import main; sys.exit(main(sys.argv[1:]))",
)
STREAM = b"bench-ceph-osds-"


def main() -> int:
    """Prints the figures; 1 when the verdicts are others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--healthy", type=float, default=420.0, help="seconds, default %(default)s")
    parser.add_argument("--slow", type=float, default=660.0, help="seconds, default %(default)s")
    parser.add_argument("--iops", type=int, default=40, help="default %(default)s; 0: a healthy cluster")
    options = parser.parse_args()
    if not (is_installed() and shutil.which("prometheus")):
        parser.error(f"needs prometheus, {', '.join(PROGRAMS)}")
    seconds = options.healthy + options.slow
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp", prefix="lg-")))
        cluster = stack.enter_context(ceph_cluster(folder, OSDS))
        exporter_port = stack.enter_context(exporter(cluster))
        server = stack.enter_context(prometheus(folder, exporter_port))
        stack.enter_context(load(cluster, round(seconds) + 90))
        time.sleep(60)
        daemon = stack.enter_context(aggregator(folder, server))
        clock = SystemClock()
        context = Context(Roots(), clock.wall_ns, clock.monotonic_ns)
        collector = Ceph(CephSettings(cluster.sockets, cluster.folder, 10.0), context)
        live = live_scrapes("http://127.0.0.1:1", time.time(), "scrape_seconds = 15", more=DETECT)
        used = reads = 0.0
        seen = [witness(cluster)]
        begun, throttled = time.time(), 0.0
        while time.time() < begun + seconds:
            if not throttled and time.time() >= begun + options.healthy:
                throttled = time.time()
                seen.append(witness(cluster))
                if options.iops:
                    place = cluster.osd_pids[SLOW], cluster.devices[SLOW]
                    stack.enter_context(throttle(*place, options.iops))
            before = time.thread_time()
            readings = list(collector.read())
            used, reads = used + time.thread_time() - before, reads + 1
            admit(live, readings)
            time.sleep(1 - time.time() % 1)
        seen.append(witness(cluster))
        alarms = alarms_of(daemon)
        looked_at = diagnosed(server, begun)
    print(f"{OSDS} OSDs, {seconds:.0f} s, {reads:.0f} samples: {1000 * used / reads:.2f} ms of CPU each")
    show_witness(seen)
    raised = [(at, event.alarm) for at, event in live.events if event.kind == "raised"]
    by_collector = [(at, one.component, one.metric, one.severity) for at, one in raised]
    right = True
    for name, told in (("collector", by_collector), ("exporter's map", alarms)):
        for at, component, metric, severity in told:
            print(f"{name}: {component} {metric}: {severity:.1f} times, after {at - throttled:.0f} s")
        if not told:
            print(f"{name}: no alarm")
        named = {component.rpartition("/")[2] for _, component, _, _ in told}
        right &= named == ({f"osd.{SLOW}"} if options.iops else set())
        right &= all(at > throttled for at, _, _, _ in told)
    print(f"diagnose: {', '.join(sorted(looked_at)) or 'no straggler'}")
    right &= {name.rpartition("/")[2] for name in looked_at} == named
    print(machine("zstandard"))
    return int(not right)


@dataclass(frozen=True, slots=True)
class Witness:
    """The kernel's counts of an OSD: its device's requests and their ms, and its wait for CPUs in ms."""

    requests: int
    request_ms: int
    cpu_wait_ms: float


def witness(cluster: CephCluster) -> list[Witness]:
    """The counts of each OSD now."""
    lines = {line.split()[2]: line.split() for line in Path("/proc/diskstats").read_text().splitlines()}
    told = []
    for pid, device in zip(cluster.osd_pids, cluster.devices, strict=True):
        row = lines[device.name]
        waited = 0
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # a thread that has ended
                waited += int((task / "schedstat").read_text().split()[1])
        told.append(Witness(int(row[3]) + int(row[7]), int(row[6]) + int(row[10]), waited / 1e6))
    return told


def show_witness(seen: list[list[Witness]]) -> None:
    """Prints a line for each OSD: before the throttle / from then on."""
    for osd, counts in enumerate(zip(*seen, strict=True)):
        parts = list(pairwise(counts))
        awaits = [(b.request_ms - a.request_ms) / max(b.requests - a.requests, 1) for a, b in parts]
        waits = [(b.cpu_wait_ms - a.cpu_wait_ms) / 1000 for a, b in parts]
        shown = " / ".join(f"{value:.2f}" for value in awaits)
        print(f"osd.{osd}: device {shown} ms a request, CPU {' / '.join(f'{s:.0f}' for s in waits)} s waited")


@contextmanager
def prometheus(folder: Path, target: int) -> Iterator[str]:
    """The URL of a server that scrapes the port `target`, while the block lasts."""
    targets = f'[{{targets: ["127.0.0.1:{target}"]}}]'
    scrape = f"{{job_name: ceph, scrape_interval: 15s, honor_labels: true, static_configs: {targets}}}"
    (folder / "prometheus.yml").write_text(f"scrape_configs: [{scrape}]\n")
    port = free_port()
    command = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with running(command, folder / "prometheus.log"):
        wait_until(lambda: is_listening(port), "prometheus")
        yield f"http://127.0.0.1:{port}"


@contextmanager
def aggregator(folder: Path, server: str) -> Iterator[str]:
    """The URL of a daemon as `laggard init` configures it, with short windows, while the block lasts."""
    settings = folder / "aggregator.toml"
    command = [sys.executable, "-m", "laggard_aggregator.cli.main"]
    print(run_command([*command, "init", "--prometheus", server, "-o", settings]).stdout)
    port = free_port()
    with settings.open("a") as more:
        more.write(f'\n[http]\nlisten = "127.0.0.1:{port}"\n{DETECT}\n')
    with running([*DAEMON, "--config", settings], folder / "aggregator.log"):
        wait_until(lambda: is_listening(port), "the aggregator")
        yield f"http://127.0.0.1:{port}"


def diagnosed(server: str, start: float) -> set[str]:
    """The stragglers of `laggard diagnose --map ceph` from `start` on."""
    command = [sys.executable, "-m", "laggard_aggregator.cli.main", "diagnose", "--prometheus", server]
    windows = ["--interval", "30", "--window", "6", "--shift", "3"]
    ended = run_command([*command, "--map", "ceph", f"--from={start:.0f}", "--json", *windows], check=False)
    print(ended.stderr, end="")
    records = [json.loads(line) for line in ended.stdout.splitlines()]
    return {f"{one['group']}/{one['component']}" for one in records if one.get("straggler")}


def alarms_of(url: str) -> list[tuple[float, str, str, float]]:
    """The alarms that a daemon raised: time, component, metric and severity."""
    with urllib.request.urlopen(f"{url}/api/v1/alarms", timeout=60) as answer:
        alarms = json.load(answer)["alarms"]
    return [(one["raised_at"], one["component"], one["metric"], one["worst_severity"]) for one in alarms]


@contextmanager
def load(cluster: CephCluster, seconds: int) -> Iterator[None]:
    """Clients that write and read while the block lasts."""
    rados = ["rados", "-c", str(cluster.folder / "ceph.conf"), "-p", "bench", "bench"]
    size = ["-b", "16384", "--no-cleanup", "--run-name"]
    # Readers read what a writer that has ended wrote.
    run_command([*rados, "20", "write", "-t", "12", *size, "read"])
    with (cluster.folder / "load").open("w") as output, ExitStack() as stack:
        for more in (["write", "-t", "12", *size, "more"], ["rand", "-t", "6", "--run-name", "read"]):
            stack.enter_context(started([*rados, str(seconds), *more], stdout=output, stderr=output))
        yield


@contextmanager
def throttle(leash: int, device: Path, iops: int) -> Iterator[None]:
    """Limits what the children of process `leash` read and write of a block device, while the block lasts."""
    group = BLKIO / f"laggard-bench-{os.getpid()}"
    group.mkdir()
    number = device.stat().st_rdev
    for kind in ("read", "write"):
        limit = f"{os.major(number)}:{os.minor(number)} {iops}"
        (group / f"blkio.throttle.{kind}_iops_device").write_text(limit)
    pids = [leash, *map(int, Path(f"/proc/{leash}/task/{leash}/children").read_text().split())]
    for pid in pids:
        (group / "cgroup.procs").write_text(str(pid))
    try:
        yield
    finally:
        for pid in pids:
            (BLKIO / "cgroup.procs").write_text(str(pid))
        group.rmdir()


_SCHEMAS: dict[str, Schema] = {}
_ENCODER = Encoder()


def admit(live: LiveScrapes, readings: list[Reading]) -> None:
    """Puts the OSDs' reading into the machine as an agent's batch, and judges the windows that are due."""
    live.clock.ns = time.time_ns()
    for reading in readings:
        if reading.source != "ceph_osd":
            continue
        tick = round(reading.read_at_ns / 1e9)
        known = _SCHEMAS.get(reading.source)
        topic = ("site", "storage", "oss", reading.source)
        messages = []
        if known is None or known.components != reading.components:
            epoch = 0 if known is None else known.epoch + 1
            known = Schema("oss", reading.source, STREAM, epoch, 10**9, 1, reading.fields, reading.components)
            _SCHEMAS[reading.source] = known
            messages.append((schema_topic(*topic), wire.encode_schema(known), live.clock.ns))
        payload = _ENCODER.encode(range(len(reading.rows)), [list(reading.rows)], [0])
        envelope = Envelope(
            Kind.COUNTERS,
            "oss",
            reading.source,
            STREAM,
            tick,
            known.epoch,
            tick * 10**9,
            0,
            1,
            DELTA_ZSTD,
            payload,
        )
        messages.append((data_topic(*topic), wire.encode_envelope(envelope), live.clock.ns))
        asyncio.run(live.admit(messages))
    live.judge()


if __name__ == "__main__":
    sys.exit(main())
