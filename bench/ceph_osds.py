"""A slow OSD of a real Ceph cluster, found by the collector `ceph`: `python -m bench.ceph_osds`. Needs root.

One monitor and six OSDs on loopback, with writes and reads of `rados bench`. The collector samples every
second; the machine judges with intervals of 5 s and windows of 12. After --healthy seconds the device of one
OSD is throttled to --iops reads and writes a second (blkio, control groups v1). Prints the alarms with their
delays and the collector's cost; exits with 1 when another OSD is named, or none.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
from tests.support.ceph_cluster import CephCluster, ceph_cluster
from tests.support.live_scrapes import LiveScrapes, live_scrapes
from tests.support.processes import started

OSDS = 6
SLOW = 4
BLKIO = Path("/sys/fs/cgroup/blkio")
DETECT = "[detect]\ninterval_seconds = 5\nwindow_samples = 12\nshift_samples = 6"
STREAM = b"bench-ceph-osds-"


def main() -> int:
    """Prints the figures; 1 when the verdicts are others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--healthy", type=float, default=180.0, help="seconds, default %(default)s")
    parser.add_argument("--slow", type=float, default=240.0, help="seconds, default %(default)s")
    parser.add_argument("--iops", type=int, default=40, help="default %(default)s")
    options = parser.parse_args()
    seconds = options.healthy + options.slow
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp", prefix="lg-")))
        cluster = stack.enter_context(ceph_cluster(folder, OSDS))
        stack.enter_context(load(cluster, round(seconds) + 30))
        time.sleep(20)
        clock = SystemClock()
        context = Context(Roots(), clock.wall_ns, clock.monotonic_ns)
        collector = Ceph(CephSettings(cluster.sockets, cluster.folder), context)
        live = live_scrapes("http://127.0.0.1:1", time.time(), "scrape_seconds = 5", more=DETECT)
        used = reads = 0.0
        begun, throttled = time.time(), 0.0
        while time.time() < begun + seconds:
            if not throttled and time.time() >= begun + options.healthy:
                throttled = time.time()
                stack.enter_context(throttle(cluster.osd_pids[SLOW], options.iops))
            before = time.thread_time()
            readings = list(collector.read())
            used, reads = used + time.thread_time() - before, reads + 1
            admit(live, readings)
            time.sleep(1 - time.time() % 1)
    print(f"{OSDS} OSDs, {seconds:.0f} s, {reads:.0f} samples: {1000 * used / reads:.2f} ms of CPU each")
    raised = [(at, event.alarm) for at, event in live.events if event.kind == "raised"]
    for at, alarm in raised:
        print(f"{alarm.component} {alarm.metric}: {alarm.severity:.1f} times, after {at - throttled:.0f} s")
    if not raised:
        print("no alarm")
    print(machine("zstandard"))
    return int({alarm.component for _, alarm in raised} != {f"oss/osd.{SLOW}"} or raised[0][0] < throttled)


@contextmanager
def load(cluster: CephCluster, seconds: int) -> Iterator[None]:
    """Clients that write and read while the block lasts."""
    rados = ["rados", "-c", str(cluster.folder / "ceph.conf"), "-p", "bench", "bench", str(seconds)]
    with (cluster.folder / "load").open("w") as output, ExitStack() as stack:
        for more in (["write", "-b", "16384", "-t", "12", "--no-cleanup"], ["rand", "-t", "6"]):
            stack.enter_context(started([*rados, *more], stdout=output, stderr=output))
            time.sleep(15)
        yield


@contextmanager
def throttle(leash: int, iops: int) -> Iterator[None]:
    """Limits the block device of the children of process `leash` while the block lasts."""
    group = BLKIO / f"laggard-bench-{os.getpid()}"
    group.mkdir()
    device = Path("/tmp").stat().st_dev
    for kind in ("read", "write"):
        limit = f"{os.major(device)}:{os.minor(device)} {iops}"
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
