"""Two hours of counters for heat maps: readings of some nodes at 1 Hz, rollups of all."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.jobs_queries.generator import SITE, node_name
from laggard_aggregator.archive import layout, retention
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.jobs.rollups.series60 import LEADING, PART_ROWS
from laggard_aggregator.windows.counter_block import Block
from laggard_common.wire.schema import Component, Field, Schema

SECOND = 10**9
SOURCE = "lustre_llite"
BEGIN = 1_735_732_800
"""2025-01-01T12:00."""
TICKS = 10
FIELDS = (
    *("read_bytes_sum", "write_bytes_sum", "read_bytes_samples", "write_bytes_samples"),
    *("open_samples", "close_samples", "getattr_samples", "statfs_samples"),
)


def write_readings(archive: Path, nodes: int, seconds: int, rng: np.random.Generator) -> int:
    """Readings a second of `nodes` nodes, in batches in the order of their arrival; returns their number."""
    writer = ArchiveWriter(archive, SITE, BEGIN * SECOND)
    for batch in _batches(nodes, seconds, rng):
        writer.batch(batch)
    writer.flush()
    retention.compact(archive, (BEGIN + seconds + 7200) * SECOND)
    return nodes * seconds


def _batches(nodes: int, seconds: int, rng: np.random.Generator) -> Iterator[Batch]:
    fields = tuple(Field(name) for name in FIELDS)
    fs = (Component("fs", "fs"),)
    schemas = [
        Schema(node_name(node), SOURCE, node.to_bytes(16), 1, SECOND, TICKS, fields, fs)
        for node in range(nodes)
    ]
    values = np.zeros((nodes, len(FIELDS)), dtype=np.int64)
    late = np.zeros(TICKS, np.bool_)
    lsn = 0
    for first in range(0, seconds, TICKS):
        ticks = (BEGIN + first + 1 + np.arange(TICKS, dtype=np.int64)) * SECOND
        rises = rng.integers(0, 10**6, (nodes, TICKS, len(FIELDS))) * (rng.random((nodes, 1, 1)) < 0.2)
        counted = values[:, None, :] + np.cumsum(rises, axis=1)
        values = counted[:, -1, :]
        for node in range(nodes):
            lsn += 1
            block = Block(np.zeros(1, np.int64), counted[node][:, None, :], None, ticks, ticks, 0)
            schema = schemas[node]
            received = int(ticks[-1]) + SECOND // 10
            yield Batch(lsn, SITE, "compute", schema.stream, lsn, received, schema, block, late)


def write_rollups(archive: Path, nodes: int, hours: int, rng: np.random.Generator) -> int:
    """Rollups of `nodes` nodes, sorted by node within parts of some minutes; returns the number of rows."""
    date = datetime.fromtimestamp(BEGIN, UTC).date().isoformat()
    where = layout.folder(archive, "series60", SOURCE, date, SITE)
    names = pa.array([node_name(node) for node in range(nodes)])
    sums = [field for name in FIELDS for field in (pa.field(name, pa.int64()), pa.field(f"{name}.max", "f4"))]
    schema = pa.schema([*LEADING, *sums])
    minutes = hours * 60
    per_part = max(PART_ROWS // nodes, 1)
    for number, first in enumerate(range(0, minutes, per_part), 1):
        count = min(per_part, minutes - first)
        rows = nodes * count
        node = pa.DictionaryArray.from_arrays(np.repeat(np.arange(nodes, dtype=np.int32), count), names)
        fs = pa.repeat(pa.scalar("fs"), rows).dictionary_encode()
        minute = np.tile((BEGIN + (first + np.arange(count)) * 60) * SECOND, nodes)
        columns = [node, fs, fs, pa.array(minute).cast(LEADING.field("minute").type)]
        columns += [pa.array(np.full(rows, 60, np.uint16)), pa.array(np.full(rows, 60, np.float32))]
        for _ in FIELDS:
            moved = rng.integers(0, 10**8, rows) * (rng.random(rows) < 0.2)
            columns += [pa.array(moved), pa.array((moved / 20).astype(np.float32))]
        stamp = layout.stamp((BEGIN + first * 60) * SECOND)
        layout.write_part(where, stamp, (number, number), schema, [pa.table(columns, schema=schema)])
    return nodes * minutes
