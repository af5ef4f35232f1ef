"""Bounded buffer of messages that wait for their schema; the oldest are dropped first."""

from collections import Counter, deque
from dataclasses import dataclass

from laggard_common.wire import Envelope
from laggard_common.wire.topics import Topic

MAX_HELD = 20_000
MAX_HELD_OF_NODE = 1_000
MAX_HELD_BYTES = 64 * 1024 * 1024
HELD_NS = 600 * 1_000_000_000

_Key = tuple[str, str, bytes]


@dataclass(frozen=True, slots=True)
class Held:
    """A message of kind counters, neither decoded nor received yet; `name` and `data`: topic and payload."""

    topic: Topic
    envelope: Envelope
    received_ns: int
    name: str
    data: bytes


class SchemaWait:
    """The waiting messages by node, source and stream. `len()` is their number."""

    def __init__(self) -> None:
        self._by_stream: dict[_Key, deque[Held]] = {}
        self._of_node: Counter[str] = Counter()
        self._bytes = 0
        self.count = 0

    def add(self, held: Held) -> int:
        """Adds a message; returns the number dropped for it, itself or older ones."""
        if self._of_node[held.envelope.node] >= MAX_HELD_OF_NODE:
            return 1
        self._by_stream.setdefault(_key(held.envelope), deque()).append(held)
        self._account(held, 1)
        let_go = 0
        while self.count > MAX_HELD or self._bytes > MAX_HELD_BYTES:
            self._drop(next(iter(self._by_stream)))
            let_go += 1
        return let_go

    def release(self, node: str, source: str, stream: bytes, epoch: int) -> list[Held]:
        """Removes the stream's messages that need no later epoch than `epoch`."""
        waiting = self._by_stream.pop((node, source, stream), deque())
        ready = [held for held in waiting if held.envelope.schema_epoch <= epoch]
        for held in ready:
            self._account(held, -1)
        rest = deque(held for held in waiting if held.envelope.schema_epoch > epoch)
        if rest:
            self._by_stream[node, source, stream] = rest
        return ready

    def expire(self, now_ns: int) -> int:
        """Drops messages that waited too long; returns their number."""
        let_go = 0
        for key in list(self._by_stream):
            while key in self._by_stream and now_ns - self._by_stream[key][0].received_ns > HELD_NS:
                self._drop(key)
                let_go += 1
        return let_go

    def _drop(self, key: _Key) -> None:
        waiting = self._by_stream[key]
        self._account(waiting.popleft(), -1)
        if not waiting:
            del self._by_stream[key]

    def _account(self, held: Held, sign: int) -> None:
        self.count += sign
        self._bytes += sign * (len(held.data) + len(held.envelope.payload))
        self._of_node[held.envelope.node] += sign
        if not self._of_node[held.envelope.node]:
            del self._of_node[held.envelope.node]


def _key(envelope: Envelope) -> _Key:
    return (envelope.node, envelope.source, envelope.stream)
