"""Messages of the broker, and the batches and documents in them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.windows.counter_block import Block
from laggard_common.wire.schema import Schema

Message = tuple[str, bytes, int]
"""Topic, payload, and receive time (ns since the epoch, by the aggregator's clock)."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that is neither duplicate nor malformed, with its schema.

    `lsn`: its sequence number, common with window closes. `seq`: the message's, the first of coalesced
    batches; `tick_ns` has a gap where one of those is a duplicate. `received_ns`: receive time by the
    aggregator's clock, ns since the epoch. `late` (n,) bool: ticks received after a window over them was
    closed in at least one group; they are archived and counted, and each group skips them by its own
    watermark, online and offline alike. `accepted`: as in `log.entries.BatchEntry`.
    `schema_bytes`: memory of the schema where this batch is the first with it.
    """

    lsn: int
    site: str
    role: str
    stream: bytes
    seq: int
    received_ns: int
    schema: Schema
    counters: Block
    late: NDArray[np.bool_]
    accepted: bool = True
    schema_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        """Memory of its values, and of its schema where it is the first with it."""
        return self.counters.values.nbytes + self.schema_bytes


JOBS = "jobs"
"""Source of documents about jobs."""


@dataclass(frozen=True, slots=True)
class Document:
    """A message of kind events that is no duplicate: a file of a node's outbox, compressed.

    `lsn`, `site`, `role`, `received_ns` as in Batch. `source`: the kind of document. `value_bytes`: of its
    content, as the payload's header states them.
    """

    lsn: int
    site: str
    role: str
    node: str
    source: str
    received_ns: int
    payload: bytes
    value_bytes: int


Accepted = Batch | Document
