"""An archive, by the product's writer, of some disks over hours; one of them becomes slow."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.alarms.alarms import AlarmEvent
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.log.entries import WindowClose
from laggard_common.wire.schema import Schema
from tests.support.builders import live_status
from tests.support.builders.batches import DISKSTATS, SECOND, batch_of, schema_of

NODES = ("oss-1", "oss-2", "oss-3", "oss-4", "oss-5")
DISKS = ("a", "b")
GROUP = "luns"
SLOW = "oss-3/id-a"
COMPONENTS = tuple(f"{node}/id-{disk}" for node in NODES for disk in DISKS)
END = 1_760_000_400
HOURS = 2
SLOW_FROM = END - 3600
WINDOW = 600
BATCH = 60
READS, SECTORS, MS, SLOW_MS = 100, 16, 2, 8
"""Reads a second, sectors and milliseconds a read."""


def written(
    directory: Path, hours: int = HOURS, step: int = 5, *, restart: bool = False, end: int = END
) -> ArchiveWriter:
    """The writer, flushed: `hours` until `end`, a sample every `step` seconds.

    `restart`: the counters of all restart in the middle.
    """
    begun = end - hours * 3600
    writer = ArchiveWriter(directory, "site", begun * SECOND)
    schemas = [schema_of(node, DISKS, interval_ns=step * SECOND, batch_ticks=BATCH // step) for node in NODES]
    lsn = 0
    for first in range(begun, end, BATCH):
        for at, schema in enumerate(schemas):
            lsn += 1
            writer.batch(_batch(schema, first, begun, step, lsn, slow=at == 2, restart=restart, end=end))
        if (first + BATCH - begun) % WINDOW == 0:
            lsn += 1
            _close(writer, lsn, first + BATCH, end)
            writer.flush()
    writer.flush()
    return writer


def _batch(
    schema: Schema, first: int, begun: int, step: int, lsn: int, *, slow: bool, restart: bool, end: int
) -> Batch:
    ticks = np.arange(first + step, first + BATCH + step, step)
    values = np.stack([_counters(ticks, begun, slow=slow and disk == "a", end=end) for disk in DISKS], axis=1)
    middle = (begun + end) // 2
    if restart and ticks[0] > middle:
        values -= np.stack(
            [_counters(np.array([middle]), begun, slow=slow and d == "a", end=end) for d in DISKS], 1
        )
    return batch_of(
        schema,
        values,
        int(ticks[0]) * SECOND,
        seq=lsn,
        lsn=lsn,
        received_ns=(first + BATCH + 1) * SECOND,
    )


def _counters(ticks: NDArray[np.int64], begun: int, *, slow: bool, end: int) -> NDArray[np.int64]:
    """(n, fields): as many reads of one size at any time, which take longer once the disk is slow."""
    since = ticks - begun
    late = np.maximum(ticks - (end - 3600), 0) if slow else np.zeros_like(ticks)
    spent = READS * (MS * since + (SLOW_MS - MS) * late)
    values = np.zeros((ticks.size, len(DISKSTATS)), dtype=np.int64)
    for name, column in (
        ("rd_ios", READS * since),
        ("rd_sectors", READS * SECTORS * since),
        ("rd_ms", spent),
        ("io_ms", np.minimum(spent, 500 * since)),
        ("weighted_ms", spent),
    ):
        values[:, DISKSTATS.index(name)] = column
    return values


def _close(writer: ArchiveWriter, lsn: int, window_end: int, end: int) -> None:
    """A window of all components, in which the slow one is anomalous; its alarm in the second one."""
    hot = window_end - WINDOW >= end - 3600
    severity = [SLOW_MS / MS if hot and name == SLOW else 1.0 for name in COMPONENTS]
    persistence = [1 if each > 1 else 0 for each in severity]
    judged = live_status.judgement(GROUP, COMPONENTS, persistence, severity, [each > 1 for each in severity])
    judged = replace(judged, start=float(window_end - WINDOW), end=float(window_end))
    if window_end == end - 3600 + 2 * WINDOW:
        alarm = replace(live_status.alarm(GROUP, SLOW), since=float(end - 3600), raised_at=float(window_end))
        judged = replace(judged, transitions=(AlarmEvent("raised", alarm, float(window_end)),))
    writer.window_close(WindowClose(lsn, GROUP, judged.start, judged.end, judged.end + 5))
    writer.judgement(judged)
