"""Limit of the schemas of a node: further ones wait, of each stream the latest alone, which has all others.

A schema of 16,384 components takes some 0.1 s of work. Without a limit a node whose schema grows with each
batch, which it may send, keeps the aggregator from all others.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from laggard_aggregator.ingest.batches import Message
from laggard_aggregator.ingest.schema_wait import StreamKey

_log = logging.getLogger(__name__)

BURST_BYTES = 2 * 1024**2
BYTES_PER_MINUTE = 4 * 1024**2
LEAST_BYTES = 4 * 1024
"""Least that a schema counts, so that small ones are bounded too, 1,024 a minute."""
MAX_WAITING_BYTES = 64 * 1024**2
MAX_NODE_WAITING_BYTES = 8 * 1024**2
_MINUTE_NS = 60 * 1_000_000_000


@dataclass(slots=True)
class _SchemaBudget:
    """`left`: bytes, below 0 after a large one. `waiting`: by source and stream, in the order of arrival."""

    left: float
    updated_ns: int
    waiting: dict[tuple[str, bytes], Message] = field(default_factory=dict)
    is_named: bool = False

    def refill(self, now_ns: int) -> None:
        passed_ns = max(now_ns - self.updated_ns, 0)
        self.left = min(self.left + passed_ns * BYTES_PER_MINUTE / _MINUTE_NS, BURST_BYTES)
        self.updated_ns = now_ns


class SchemaLimit:
    """Token buckets of bytes, one of each node that sent a schema within the last minute."""

    def __init__(self) -> None:
        self._nodes: dict[str, _SchemaBudget] = {}
        self._waiting: dict[str, None] = {}  # nodes with schemas that wait
        self._waiting_bytes = 0

    def admits(self, key: StreamKey, message: Message) -> bool:
        """Whether a schema may be read now; else it waits, in place of an earlier one of its stream."""
        name, source, stream = key
        now_ns = message[2]
        node = self._nodes.setdefault(name, _SchemaBudget(BURST_BYTES, now_ns))
        node.refill(now_ns)
        if node.left > 0 and (source, stream) not in node.waiting:
            node.left -= _cost(message)
            return True
        if not node.is_named:
            node.is_named = True
            _log.warning("node %s sends schemas faster than they can be read; the rest wait", name)
        self._drop(name, node, (source, stream))
        node.waiting[source, stream] = message
        self._waiting_bytes += len(message[1])
        self._waiting[name] = None
        while sum(len(message[1]) for message in node.waiting.values()) > MAX_NODE_WAITING_BYTES:
            self._drop(name, node, next(iter(node.waiting)))
        while self._waiting_bytes > MAX_WAITING_BYTES:
            oldest = next(iter(self._waiting))
            self._drop(oldest, self._nodes[oldest], next(iter(self._nodes[oldest].waiting)))
        return False

    def due(self, now_ns: int) -> Iterator[Message]:
        """Removes and yields the schemas that waited and may be read now, one a node."""
        for name in list(self._waiting):
            node = self._nodes[name]
            node.refill(now_ns)
            if node.left > 0:
                key, message = next(iter(node.waiting.items()))
                self._drop(name, node, key)
                node.left -= _cost(message)
                yield message

    def sweep(self, now_ns: int) -> None:
        """Forgets the nodes that keep to the limit again."""
        for name, node in list(self._nodes.items()):
            node.refill(now_ns)
            if node.left >= BURST_BYTES and not node.waiting:
                del self._nodes[name]

    def _drop(self, name: str, node: _SchemaBudget, key: tuple[str, bytes]) -> None:
        message = node.waiting.pop(key, None)
        if message is not None:
            self._waiting_bytes -= len(message[1])
        if not node.waiting:
            self._waiting.pop(name, None)


def _cost(message: Message) -> int:
    return max(len(message[1]), LEAST_BYTES)
