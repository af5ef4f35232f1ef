"""A spool as an agent that could not publish leaves it: its own batchers, spool and joiner."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from laggard_agent.collectors.interface import Reading
from laggard_agent.spool.segments import SpooledBatch
from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Component, Field, Schema
from tests.support.filled_spool import SECOND, FilledSpool, reopened


def counters(
    source: str, fields: Iterable[str], rows: Iterable[Sequence[Row]], start_ns: int
) -> Iterator[tuple[int, Reading]]:
    """Ticks and readings of made rows, one a second."""
    named = tuple(Field(name) for name in fields)
    components: tuple[Component, ...] = ()
    for at, row in enumerate(rows):
        components = components or tuple(Component(f"wwn-{n}", f"sd{n}") for n in range(len(row)))
        tick_ns = start_ns + at * SECOND
        yield tick_ns, Reading(source, named, tick_ns + 150_000, components, row)


def messages(
    folder: Path, readings: Iterable[tuple[int, Reading]], batch_ticks: int
) -> tuple[Schema, list[SpooledBatch]]:
    """The schema and the backlog of a spool of one source, as its agent would publish it."""
    filled = FilledSpool(folder, "template", batch_ticks)
    for tick_ns, reading in readings:
        filled.add(tick_ns, reading)
    filled.close()
    spool = reopened(folder, "template", batch_ticks)
    spool.rewind()
    found = []
    while stored := spool.next_backlog():
        found.append(stored)
    (schema,) = spool.current_schemas()
    spool.close()
    return schema, found
