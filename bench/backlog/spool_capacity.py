"""A spool as an agent that could not publish leaves it: its own batchers, spool and joiner."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from laggard_agent.app import boot_id
from laggard_agent.collectors.interface import Reading
from laggard_agent.sampling.batcher import Batcher
from laggard_agent.spool.segments import Key, SpooledBatch, SpoolIdentity
from laggard_agent.spool.spool import Spool
from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Component, Field, Schema

SECOND = 10**9
ROOM = 64 * 2**30


class Filled:
    """A spool in `folder`, filled by `take`. `close` ends it in order, so that an agent goes on with it."""

    def __init__(self, folder: Path, node: str, batch_ticks: int, interval_ns: int = SECOND) -> None:
        self._folder = folder
        self._interval_ns = interval_ns
        self._batch_ticks = batch_ticks
        self._batchers: dict[str, Batcher] = {}
        owner = SpoolIdentity(node, interval_ns, batch_ticks)
        self.spool = Spool.open(folder, owner, ROOM, boot_id(), os.urandom)

    def take(self, tick_ns: int, reading: Reading) -> None:
        """A reading of one source at one tick."""
        batcher = self._batchers.get(reading.source)
        if batcher is None:
            batcher = Batcher(reading.source, self._interval_ns, self._batch_ticks)
            self._batchers[reading.source] = batcher
        for batch in batcher.add(tick_ns, reading):
            self.spool.append(batch)

    def close(self) -> dict[Key, int]:
        """How many batches each stream and source has."""
        for batcher in self._batchers.values():
            for batch in batcher.flush():
                self.spool.append(batch)
        keys = [(schema.stream, schema.source) for schema in self.spool.current_schemas()]
        given = {key: self.spool.given(key) for key in keys}
        self.spool.close()
        return given

    @property
    def bytes(self) -> int:
        """What the files take on the disk."""
        return sum(path.stat().st_size for path in self._folder.glob("*.segment"))


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
    filled = Filled(folder, "template", batch_ticks)
    for tick_ns, reading in readings:
        filled.take(tick_ns, reading)
    filled.close()
    spool = Spool.open(folder, SpoolIdentity("template", SECOND, batch_ticks), ROOM, boot_id(), os.urandom)
    spool.rewind()
    found = []
    while stored := spool.next_backlog():
        found.append(stored)
    (schema,) = spool.current_schemas()
    spool.close()
    return schema, found
