"""Batches as the admission returns them, from a table of counters."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.log.entries import LogSequence
from laggard_aggregator.windows.counter_block import Block
from laggard_common.wire.schema import Component, Field, Schema

SECOND = 1_000_000_000
DISKSTATS = (
    *("rd_ios", "rd_merges", "rd_sectors", "rd_ms", "wr_ios", "wr_merges", "wr_sectors", "wr_ms"),
    *("in_flight", "io_ms", "weighted_ms"),
)


def schema_of(
    node: str = "oss-1",
    components: Sequence[str] = ("sda",),
    fields: Sequence[str] = DISKSTATS,
    interval_ns: int = SECOND,
    batch_ticks: int = 5,
    labels: Mapping[str, str] | None = None,
) -> Schema:
    """A diskstats schema; ids are `id-` and the name."""
    own = tuple((labels or {}).items())
    return Schema(
        node=node,
        source="diskstats",
        stream=b"s" * 16,
        epoch=1,
        interval_ns=interval_ns,
        batch_ticks=batch_ticks,
        fields=tuple(Field(name) for name in fields),
        components=tuple(Component(f"id-{name}", name, own) for name in components),
    )


def batch_of(
    schema: Schema,
    values: NDArray[np.int64],
    first_tick_ns: int,
    *,
    seq: int = 0,
    lsn: int = 1,
    received_ns: int | None = None,
    role: str = "storage",
    read_after_ns: Sequence[int] | int = 0,
) -> Batch:
    """A batch of all components with `values` (n, c, f), a tick every `interval_ns` from `first_tick_ns`."""
    n, c, _ = values.shape
    ticks = first_tick_ns + np.arange(n, dtype=np.int64) * schema.interval_ns
    return Batch(
        lsn=lsn,
        site="site",
        role=role,
        stream=schema.stream,
        seq=seq,
        received_ns=int(ticks[-1]) + SECOND // 10 if received_ns is None else received_ns,
        schema=schema,
        counters=Block(
            indexes=np.arange(c, dtype=np.int64),
            values=values,
            present=None,
            tick_ns=ticks,
            read_ns=ticks + np.asarray(read_after_ns, dtype=np.int64),
            idle=0,
        ),
        late=np.zeros(n, dtype=np.bool_),
    )


def stored(machine: Machine, batch: Batch) -> Batch:
    """`batch` as the machine returns it after storing it."""
    (found,) = machine.store((batch,))
    assert isinstance(found, Batch)
    return found


def next_lsn(sequence: LogSequence) -> int:
    """The next sequence number, as the machine assigns it."""
    sequence.last += 1
    return sequence.last
