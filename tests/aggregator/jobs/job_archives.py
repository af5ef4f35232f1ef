"""Archives of counters as the daemon writes them, from readings in any order of arrival."""

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.windows.counter_block import Block
from laggard_common.wire.schema import Component, Field, FieldKind, Schema
from tests.naive_jobs import NaiveReading

MS = 1_000_000


def job_batch(
    node: str,
    component: str,
    readings: Sequence[NaiveReading],
    *,
    lsn: int,
    received_ns: int,
    source: str = "lustre_llite",
    interval_ns: int = 1_000_000_000,
    name: str = "",
    labels: tuple[tuple[str, str], ...] = (),
    role: str = "compute",
) -> Batch:
    """The readings of one component as one message."""
    fields = sorted({each for reading in readings for each in reading.values})
    every = [
        *(Field(each) for each in fields),
        Field("start_time", FieldKind.GAUGE),
        Field("busy", FieldKind.GAUGE),
    ]
    present = [readings[0].values.get(each) is not None for each in fields]
    assert all([r.values.get(each) is not None for each in fields] == present for r in readings), "one shape"
    values = [[r.values.get(each) or 0 for each in fields] + [r.started, 7] for r in readings]
    ticks = np.array([r.tick for r in readings], dtype=np.int64) * MS
    schema = Schema(
        node,
        source,
        blake2b(repr((node, component, name, fields)).encode(), digest_size=16).digest(),
        1,
        interval_ns,
        5,
        tuple(every),
        (Component(component, name or component, labels),),
    )
    return Batch(
        lsn=lsn,
        site="site",
        role=role,
        stream=schema.stream,
        seq=lsn,
        received_ns=received_ns,
        schema=schema,
        counters=Block(
            indexes=np.zeros(1, dtype=np.int64),
            values=np.array(values, dtype=np.int64)[:, None, :],
            present=None if all(present) else np.array([[*present, True, True]]),
            tick_ns=ticks,
            read_ns=np.array([r.read for r in readings], dtype=np.int64) * MS,
            idle=0,
        ),
        late=np.zeros(len(readings), dtype=np.bool_),
    )


def write_parts(directory: Path, parts: Sequence[Sequence[Batch]], run_ns: int) -> None:
    """Each of `parts` as one file a source, by a writer that may continue an earlier one's day."""
    writer = ArchiveWriter(directory, "site", run_ns)
    for batches in parts:
        for batch in batches:
            writer.batch(batch)
        writer.flush()
