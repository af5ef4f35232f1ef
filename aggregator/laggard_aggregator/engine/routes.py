"""Routes of a schema's components to groups and rows of their stores, and a batch's rows there."""

import functools
from dataclasses import dataclass

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, IntArray
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.windows.counter_block import Block
from laggard_aggregator.windows.function_counters import NodeFunctions
from laggard_aggregator.windows.function_store import FunctionStore
from laggard_aggregator.windows.store import GroupStore
from laggard_common.wire.schema import Schema

START_TIME = "start_time"
"""The field with the time since when a component's counters count: docs/wire-format.md."""

ABSENT = -1
"""Column of a counter that a schema lacks."""
ORIGIN_BITS = 20
"""Bits of an origin's number; SET_BITS above them say which of the `optional` counters a component lacks."""
SET_BITS = 43


@dataclass(frozen=True, slots=True)
class Route:
    """From the batches of one schema to one group's store. `rows` (components,): -1 for non-members.

    `columns` (counters,): the field of each of the store's counters, ABSENT for a missing optional one,
    `missing`: those. `optional`: optional counters that the schema has, and single components may lack.
    `origin`: number of the node and its set of counters. `varies`: the origin may change with each batch, as
    components move between nodes or lack counters. `moving`: components may move between nodes. `started`:
    the column of START_TIME, or ABSENT.
    """

    store: GroupStore
    rows: IntArray
    complete: bool
    columns: IntArray
    missing: IntArray
    optional: IntArray
    origin: int
    varies: bool
    moving: bool
    started: int

    @property
    def alone(self) -> bool:
        """Whether its blocks cannot be stored together with those of other nodes."""
        return self.moving or self.started != ABSENT

    def late(self, counters: Block) -> int:
        """Number of samples if all are late for the group and change nothing in its store, else 0.

        The backlog of an outage consists of such samples; no block is made of them.
        """
        if counters.tick_ns[-1] > self.store.watermark_ns or self.varies or counters.present is not None:
            return 0
        return counters.tick_ns.size * int(np.count_nonzero(self.rows[counters.indexes] >= 0))

    def block(self, batch: Batch) -> tuple[Block, IntArray | int]:
        """The batch's rows of this group, and their origin: one number, or one per row."""
        counters = batch.counters
        rows = self.rows[counters.indexes]
        values = counters.values.take(self.columns, axis=2)
        origins: IntArray | int = self.origin
        if counters.present is not None:
            present = counters.present[:, self.columns] & (self.columns != ABSENT)
            rows = np.where(self.store.has_metric(present), rows, -1)
            if self.optional.size:
                lacking = ~present[:, self.optional]
                origins = self._origins(lacking)
                at, counter = np.nonzero(lacking)
                values[:, at, self.optional[counter]] = 0
        if self.missing.size:
            values[:, :, self.missing] = 0
        started = counters.values[:, :, self.started] if self.started != ABSENT else None
        block = Block(rows, values, None, counters.tick_ns, counters.read_ns, counters.idle, started)
        if not self.complete or counters.present is not None:
            return kept(block, origins, rows >= 0)
        return block, origins

    def _origins(self, lacking: BoolArray) -> IntArray:
        """One origin per set of counters that components lack: `lacking` (c, optional), to (c,).

        A counter without a value reads as 0; the change of origin hides its fall to 0 and its rise from
        there.
        """
        sets = np.where(lacking, _numbers(self.optional.size), 0).sum(axis=1)
        origins: IntArray = np.left_shift(sets, ORIGIN_BITS) + self.origin
        return origins


@functools.cache
def _numbers(count: int) -> IntArray:
    """A number for each of `count` counters: sums of different sets differ, in SET_BITS bits.

    A bit each; of more, as histograms have, numbers drawn once, two sums of which are equal by chance alone.
    """
    if count < SET_BITS:
        return np.left_shift(1, np.arange(count, dtype=np.int64))
    return np.random.default_rng(0).integers(1, (1 << SET_BITS) // count, size=count, dtype=np.int64)


def kept(block: Block, origins: IntArray | int, keep: BoolArray) -> tuple[Block, IntArray | int]:
    """The selected components (c,) of a block, with their origins."""
    return block.of(keep), origins if isinstance(origins, int) else origins[keep]


@dataclass(frozen=True, slots=True)
class FunctionRoute:
    """As Route, for a schema whose components are functions. `columns` as in Route."""

    store: FunctionStore
    node: NodeFunctions
    columns: IntArray

    def block(self, batch: Batch) -> Block:
        """The batch's functions of this group of nodes."""
        counters = batch.counters
        rows = self.node.rows[counters.indexes]
        keep = rows >= 0
        if counters.present is not None:
            keep &= counters.present[:, self.columns].all(axis=1)
        idle = int(np.count_nonzero(keep[rows.size - counters.idle :]))
        values = counters.values.take(self.columns, axis=2)[:, keep]
        return Block(rows[keep], values, None, counters.tick_ns, counters.read_ns, idle)


@dataclass(frozen=True, slots=True)
class SchemaRoutes:
    """The routes of one schema with `width` of its fields, sent by a node of `role`.

    `alone`: its blocks cannot be stored together with those of other nodes.
    """

    schema: Schema
    role: str
    width: int
    routes: tuple[Route | FunctionRoute, ...]
    alone: bool

    def match(self, batch: Batch) -> bool:
        """Whether they are those of `batch`; a forgotten stream may come back with another schema."""
        width = batch.counters.values.shape[2]
        return self.schema is batch.schema and (self.role, self.width) == (batch.role, width)
