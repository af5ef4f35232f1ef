"""Counters for heat maps: rollups of all nodes."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.jobs_queries.generator import SITE, node_name
from laggard_aggregator.archive import layout
from laggard_aggregator.jobs.rollups.series60 import LEADING, PART_ROWS

SECOND = 10**9
SOURCE = "lustre_llite"
BEGIN = 1_735_732_800
"""2025-01-01T12:00."""
FIELDS = (
    *("read_bytes_sum", "write_bytes_sum", "read_bytes_samples", "write_bytes_samples"),
    *("open_samples", "close_samples", "getattr_samples", "statfs_samples"),
)


def write_rollups(
    archive: Path,
    nodes: int,
    hours: int,
    rng: np.random.Generator,
    begin: int = BEGIN,
    fields: Sequence[str] = FIELDS,
) -> int:
    """Rollups of `nodes` nodes, sorted by node within parts of some minutes; returns the number of rows.

    `begin` and the last of the `hours` are on one day.
    """
    date = datetime.fromtimestamp(begin, UTC).date().isoformat()
    where = layout.folder(archive, "series60", SOURCE, date, SITE)
    names = pa.array([node_name(node) for node in range(nodes)])
    sums = [field for name in fields for field in (pa.field(name, pa.int64()), pa.field(f"{name}.max", "f4"))]
    schema = pa.schema([*LEADING, *sums])
    minutes = hours * 60
    per_part = max(PART_ROWS // nodes, 1)
    for number, first in enumerate(range(0, minutes, per_part), 1):
        count = min(per_part, minutes - first)
        rows = nodes * count
        node = pa.DictionaryArray.from_arrays(np.repeat(np.arange(nodes, dtype=np.int32), count), names)
        fs = pa.repeat(pa.scalar("fs"), rows).dictionary_encode()
        minute = np.tile((begin + (first + np.arange(count)) * 60) * SECOND, nodes)
        columns = [node, fs, fs, pa.array(minute).cast(LEADING.field("minute").type)]
        columns += [pa.array(np.full(rows, 60, np.uint16)), pa.array(np.full(rows, 60, np.float32))]
        for _ in fields:
            moved = rng.integers(0, 10**8, rows) * (rng.random(rows) < 0.2)
            columns += [pa.array(moved), pa.array((moved / 20).astype(np.float32))]
        stamp = layout.stamp((begin + first * 60) * SECOND)
        layout.write_part(where, stamp, (number, number), schema, [pa.table(columns, schema=schema)])
    return nodes * minutes
