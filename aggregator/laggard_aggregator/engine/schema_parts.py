"""How the batches of one schema are spread over peer groups: each group has a part of it.

Made once for a schema, and gone through with every batch.
"""

from dataclasses import dataclass

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, IntArray
from laggard_aggregator.ingest.batches import TakenBatch
from laggard_aggregator.windows.counter_block import Reading
from laggard_aggregator.windows.function_counters import NodeFunctions
from laggard_aggregator.windows.function_store import FunctionStore
from laggard_aggregator.windows.store import GroupStore
from laggard_common.wire.schema import Schema

ABSENT = -1
"""The column of a counter that a schema lacks."""

ORIGIN_BITS = 20
"""An origin's number has so many bits; those above say which of the `unsure` counters a component lacks."""


@dataclass(frozen=True, slots=True)
class Part:
    """One group's share of a schema. `rows` (components,): the group's rows, -1 for strangers.

    `columns` (counters,): the field of each of the store's counters, -1 for an optional one that is missing.
    `unsure`: places of optional counters that are not missing, and may still be absent of single components.
    `origin`: what the counters come from, a node and a set of them. `varies`: it may be another with a batch,
    as components may move between nodes, or some have fewer counters than others. `moving`: they may be
    components of other nodes, too. `started`: the field that tells when a component's counters began, -1
    where there is none.
    """

    store: GroupStore
    rows: IntArray
    complete: bool
    columns: IntArray
    missing: IntArray
    unsure: IntArray
    origin: int
    varies: bool
    moving: bool
    started: int

    @property
    def alone(self) -> bool:
        """Whether its readings are not to be stored together with those of other nodes."""
        return self.moving or self.started != ABSENT

    def reading(self, taken: TakenBatch) -> tuple[Reading, IntArray | int]:
        """What of a batch concerns one group, and where its counters come from: all, or each component's."""
        batch = taken.batch
        rows = self.rows[batch.indexes]
        values = batch.values.take(self.columns, axis=2)
        origins: IntArray | int = self.origin
        if batch.present is not None:
            there = batch.present[:, self.columns] & (self.columns != ABSENT)
            rows = np.where(self.store.tells(there), rows, -1)
            if self.unsure.size:
                lacking = ~there[:, self.unsure]
                origins = self._origins(lacking)
                at, counter = np.nonzero(lacking)
                values[:, at, self.unsure[counter]] = 0
        if self.missing.size:
            values[:, :, self.missing] = 0
        started = batch.values[:, :, self.started] if self.started != ABSENT else None
        changing = rows.size - batch.idle
        if not self.complete or batch.present is not None:
            keep = rows >= 0
            changing = int(np.count_nonzero(keep[:changing]))
            rows, values = rows[keep], values[:, keep]
            started = None if started is None else started[:, keep]
            origins = origins if isinstance(origins, int) else origins[keep]
        return Reading(
            rows, values, batch.tick_ns, batch.read_ns, changing, taken.received_ns, started
        ), origins

    def _origins(self, lacking: BoolArray) -> IntArray:
        """An origin for each set of counters that components lack: `lacking` (c, unsure), to (c,).

        A counter that is not told reads as 0, and must neither seem to have fallen nor to have risen from
        there.
        """
        bits = np.left_shift(1, ORIGIN_BITS + np.arange(self.unsure.size, dtype=np.int64))
        origins: IntArray = np.where(lacking, bits, 0).sum(axis=1) + self.origin
        return origins


@dataclass(frozen=True, slots=True)
class FunctionPart:
    """A group's share of a schema whose components are functions. `columns` as in Part."""

    store: FunctionStore
    node: NodeFunctions
    columns: IntArray

    def reading(self, taken: TakenBatch) -> Reading:
        """What of a batch concerns a group of nodes that are compared by functions."""
        batch = taken.batch
        rows = self.node.rows[batch.indexes]
        keep = rows >= 0
        if batch.present is not None:
            keep &= batch.present[:, self.columns].all(axis=1)
        changing = int(np.count_nonzero(keep[: rows.size - batch.idle]))
        values = batch.values.take(self.columns, axis=2)[:, keep]
        return Reading(rows[keep], values, batch.tick_ns, batch.read_ns, changing, taken.received_ns)


@dataclass(frozen=True, slots=True)
class Index:
    """How to spread the batches of one schema with `width` of its fields over the groups of a role.

    `alone`: they are not to be stored together with those of other nodes.
    """

    schema: Schema
    role: str
    width: int
    parts: tuple[Part | FunctionPart, ...]
    alone: bool

    def reads(self, taken: TakenBatch) -> bool:
        """Whether it is for batches like this; a forgotten stream may come back with another schema."""
        width = taken.batch.values.shape[2]
        return self.schema is taken.schema and (self.role, self.width) == (taken.role, width)
