"""Batches of readings, and the append-only dictionary of their columns and rows.

A batch holds consecutive ticks of one source with the same components, the same absent values and one epoch.
Any other reading closes it early, so a batch is a plain block of numbers.
"""

import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from laggard_agent.collectors.interface import Reading
from laggard_common.wire import Kind
from laggard_common.wire.codec import Encoder, Row
from laggard_common.wire.limits import MAX_COMPONENTS
from laggard_common.wire.schema import Component, Field

_log = logging.getLogger(__name__)

MOST_VALUES = 256 * 1024  # per message: 2 MiB of lanes before compression
_MAX_OFFSET_US = 2**31 - 1
_MAX_DICTIONARY_CHARS = 3 * 1024 * 1024  # a schema is a message, too
MAX_ABSENT_COMPONENTS = 256
MAX_ABSENT_RATIO = 4  # absent components to present ones


@dataclass(frozen=True, slots=True)
class Dictionary:
    """Fields and components by position at `epoch`. Positions of another `generation` are unrelated."""

    generation: int = 0
    epoch: int = 0
    fields: tuple[Field, ...] = ()
    components: tuple[Component, ...] = ()


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """An encoded batch: `n` ticks from `t0_ns`, decodable with `dictionary` or a later epoch of it.

    Of kind events it is one document, which needs no dictionary.
    """

    source: str
    dictionary: Dictionary
    t0_ns: int
    dt_ns: int
    n: int
    codec: int
    payload: bytes
    kind: Kind = Kind.COUNTERS


def last_tick(tick_ns: int, interval_ns: int, batch_ticks: int, phase_ticks: int = 0) -> int:
    """Time of the last tick in the batch of `tick_ns`. `phase_ticks`: the node's splay."""
    place = (tick_ns // interval_ns + phase_ticks) % batch_ticks
    return tick_ns + (batch_ticks - 1 - place) * interval_ns


def splay_ns(site: str, node: str, batch_ns: int) -> int:
    """Offset of a node's batches within the batch interval, which spreads the publishes of a site."""
    return zlib.crc32(f"{site}/{node}".encode()) * batch_ns >> 32


class Batcher:
    """Collects the readings of one source into batches, which end at `last_tick`.

    Batchers may share an `encoder` and its memory. Of a source with more than MAX_COMPONENTS components the
    first ones are sampled, with a WARNING.
    """

    def __init__(
        self,
        source: str,
        interval_ns: int,
        batch_ticks: int,
        *,
        phase_ticks: int = 0,
        dictionary: Dictionary | None = None,
        encoder: Encoder | None = None,
    ) -> None:
        self.source = source
        self.dictionary = dictionary or Dictionary()
        self._interval_ns = interval_ns
        self._batch_ticks = batch_ticks
        self._phase_ticks = phase_ticks
        self._encoder = encoder or Encoder()
        self._place_of = {c.id: i for i, c in enumerate(self.dictionary.components)}
        self._components: tuple[Component, ...] | None = None  # of the latest reading
        self._fields: tuple[Field, ...] | None = None
        self._order: list[int] = []  # rows of a reading in the order of the dictionary
        self._in_order = True
        self._columns: list[int] | None = None  # where each dictionary field is in a row; None: as they come
        self._indexes: list[int] = []
        self._absent: dict[int, tuple[bool, ...]] = {}
        self._ticks: list[list[Row]] = []
        self._offsets_us: list[int] = []
        self._t0_ns = 0

    def add(self, tick_ns: int, reading: Reading) -> list[EncodedBatch]:
        """Adds a reading; returns the batches that it closed, usually none or one."""
        closed = []
        if reading.components is not self._components or reading.fields is not self._fields:
            closed += self.flush()
            self._learn(reading)
        rows = self._rows(reading)
        if not rows:
            return closed
        absent = _absent(rows)
        if self._ticks and (
            tick_ns != self._t0_ns + len(self._ticks) * self._interval_ns or absent != self._absent
        ):
            closed += self.flush()
        if not self._ticks:
            self._t0_ns = tick_ns
            self._absent = absent
        self._ticks.append(rows)
        offset_us = (reading.read_at_ns - tick_ns) // 1000
        self._offsets_us.append(max(-_MAX_OFFSET_US, min(_MAX_OFFSET_US, offset_us)))
        if self._is_full(tick_ns):
            closed += self.flush()
        return closed

    def expire(self, tick_ns: int) -> list[EncodedBatch]:
        """Closes and returns a batch that is overdue at `tick_ns`, as its source had no more readings."""
        overdue = self._ticks and tick_ns - self._t0_ns > self._batch_ticks * self._interval_ns
        return self.flush() if overdue else []

    def flush(self) -> list[EncodedBatch]:
        """Closes and returns the incomplete batch, if there is one."""
        if not self._ticks:
            return []
        batch = EncodedBatch(
            source=self.source,
            dictionary=self.dictionary,
            t0_ns=self._t0_ns,
            dt_ns=self._interval_ns,
            n=len(self._ticks),
            codec=self._encoder.codec,
            payload=self._encoder.encode(self._indexes, self._ticks, self._offsets_us),
        )
        self._ticks = []
        self._offsets_us = []
        return [batch]

    def _is_full(self, tick_ns: int) -> bool:
        values = (len(self._ticks) + 1) * len(self._indexes) * len(self.dictionary.fields)
        due = last_tick(tick_ns, self._interval_ns, self._batch_ticks, self._phase_ticks) == tick_ns
        return due or len(self._ticks) >= self._batch_ticks or values > MOST_VALUES

    def _rows(self, reading: Reading) -> list[Row]:
        rows = list(reading.rows) if self._in_order else [reading.rows[i] for i in self._order]
        if self._columns is not None:
            rows = [tuple(None if at < 0 else row[at] for at in self._columns) for row in rows]
        return rows

    def _learn(self, reading: Reading) -> None:
        """Adds the reading's fields and components to the dictionary and finds their positions."""
        self.dictionary = self._grown(reading)
        self._components = reading.components
        self._fields = reading.fields
        places = [self._place_of[component.id] for component in reading.components[:MAX_COMPONENTS]]
        self._order = sorted(range(len(places)), key=places.__getitem__)
        self._in_order = self._order == list(range(len(reading.components)))
        self._indexes = sorted(places)
        at = {field.name: i for i, field in enumerate(reading.fields)}
        columns = [at.get(field.name, -1) for field in self.dictionary.fields]
        self._columns = None if columns == list(range(len(reading.fields))) else columns

    def _grown(self, reading: Reading) -> Dictionary:
        old = self.dictionary
        known = {field.name: field for field in old.fields}
        changed = any(known.get(field.name, field) != field for field in reading.fields)
        new = {c.id: c for c in reading.components[:MAX_COMPONENTS]}
        if len(reading.components) > MAX_COMPONENTS:
            _log.warning(
                "%s has %d components: only the first %d are sampled",
                self.source,
                len(reading.components),
                MAX_COMPONENTS,
            )
        together = {c.id: c for c in old.components} | new
        many = len(together) > MAX_COMPONENTS or sum(map(_chars, together.values())) > _MAX_DICTIONARY_CHARS
        # Each new job of a node sends the dictionary: without the jobs of the past it stays small.
        many |= len(together) - len(new) > max(MAX_ABSENT_COMPONENTS, MAX_ABSENT_RATIO * len(new))
        if changed or many:
            old = Dictionary(old.generation + 1)
            known = {}
            self._place_of = {}
        fields = (*old.fields, *(field for field in reading.fields if field.name not in known))
        components = [new.get(c.id, c) for c in old.components]
        for component in new.values():
            if component.id not in self._place_of:
                self._place_of[component.id] = len(components)
                components.append(component)
        if fields == old.fields and tuple(components) == old.components:
            return old
        return Dictionary(old.generation, old.epoch + 1, fields, tuple(components))


def _chars(component: Component) -> int:
    return len(component.id) + len(component.name) + sum(len(k) + len(v) for k, v in component.labels)


def _absent(rows: Sequence[Row]) -> dict[int, tuple[bool, ...]]:
    """Which values are None, by row; rows without None are left out."""
    try:
        sum(map(sum, rows))  # type: ignore[arg-type]  # to compare each value with None takes three times as long
    except TypeError:
        pass
    else:
        return {}
    return {i: tuple(value is None for value in row) for i, row in enumerate(rows) if None in row}
