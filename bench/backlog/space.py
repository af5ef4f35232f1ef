"""How much time the default bound of a spool holds at 64 devices and one sample a second."""

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.agent import COUNTERS
from bench.backlog.spool_capacity import counters
from bench.bytes_a_day import BUSY_LUNS, LUNS, server
from laggard_agent.collectors.diskstats.collector import FIELDS
from laggard_agent.collectors.interface import Roots
from laggard_agent.collectors.registry import make_collector
from laggard_agent.settings import SpoolSettings
from laggard_aggregator.demo.recording import read_recording
from laggard_common.clock import SystemClock
from laggard_common.wire.codec import Row
from tests.support.filled_spool import SECOND, FilledSpool

DAY_SECONDS = 86_400
MADE_SECONDS = 300
OWN_SECONDS = 60


def table() -> list[str]:
    """The lines of a table in Markdown."""
    bound = SpoolSettings().max_bytes
    recording = read_recording()
    own = _own_rest()
    lines = [
        "| 64 devices, 17 counters, batches of 5, with net and host | spooled a day, MiB "
        f"| hours in {bound >> 20} MiB |",
        "|---|---:|---:|",
    ]
    for what, rows in {
        "idle": server(recording, 0),
        "4 of them busy (recorded under fio)": server(recording, BUSY_LUNS),
        "all busy (recorded under fio)": server(recording, LUNS),
        "all counters growing by up to 200 at random": list(_random(200)),
        "all counters growing by up to 3,000 at random": list(_random(3000)),
        "all counters growing by up to 200,000 at random": list(_random(200_000)),
    }.items():
        a_day = _a_day(rows) + own
        lines.append(f"| {what} | {a_day / 2**20:.0f} | {24 * bound / a_day:.0f} |")
    return lines


def _a_day(rows: Sequence[Sequence[Row]]) -> float:
    """Bytes that a day of diskstats takes in a spool."""
    with TemporaryDirectory() as folder:
        filled = FilledSpool(Path(folder), "oss-1", 5)
        names = [field.name for field in FIELDS]
        for tick_ns, reading in counters("diskstats", names, rows, time.time_ns() // SECOND * SECOND):
            filled.add(tick_ns, reading)
        filled.close()
        return filled.bytes / len(rows) * DAY_SECONDS


def _own_rest() -> float:
    """The same of net and host on this machine."""
    clock = SystemClock()
    with TemporaryDirectory() as folder:
        filled = FilledSpool(Path(folder), "oss-1", 5)
        collectors = [make_collector(name, {}, Roots(), clock.wall_ns, clock) for name in ("net", "host")]
        start = time.time_ns() // SECOND + 1
        for at in range(OWN_SECONDS):
            time.sleep(max(start + at - time.time(), 0))
            for collector in collectors:
                for reading in collector.read():
                    filled.add((start + at) * SECOND, reading)
        filled.close()
        return filled.bytes / OWN_SECONDS * DAY_SECONDS


def _random(most: int) -> Iterator[list[Row]]:
    """Rows whose every counter grows in every second, as little as possible alike."""
    chance = random.Random(1)
    values = [[chance.randrange(10**9) for _ in range(COUNTERS)] for _ in range(LUNS)]
    for _ in range(MADE_SECONDS):
        values = [[value + chance.randrange(1, most) for value in row] for row in values]
        yield [tuple(row) for row in values]
