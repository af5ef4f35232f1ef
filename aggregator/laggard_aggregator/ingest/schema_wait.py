"""Bounded buffer of messages that wait for their schema; the oldest are dropped first."""

from collections import Counter, deque
from collections.abc import Iterator

from laggard_aggregator.ingest.batches import Message

MAX_HELD = 20_000
MAX_HELD_OF_NODE = 1_000
MAX_HELD_BYTES = 64 * 1024 * 1024
HELD_NS = 600 * 1_000_000_000

StreamKey = tuple[str, str, bytes]
"""Node, source and stream."""


class SchemaWait:
    """The waiting messages by stream, each with the epoch that it needs. `count`: their number."""

    def __init__(self) -> None:
        self._by_stream: dict[StreamKey, deque[tuple[int, Message]]] = {}
        self._of_node: Counter[str] = Counter()
        self._bytes = 0
        self.count = 0

    def add(self, key: StreamKey, epoch: int, message: Message) -> int:
        """Adds a message; returns the number dropped for it, itself or older ones."""
        if self._of_node[key[0]] >= MAX_HELD_OF_NODE:
            return 1
        self._by_stream.setdefault(key, deque()).append((epoch, message))
        self._account(key, message, 1)
        let_go = 0
        while self.count > MAX_HELD or self._bytes > MAX_HELD_BYTES:
            self._drop(next(iter(self._by_stream)))
            let_go += 1
        return let_go

    def release(self, key: StreamKey, epoch: int) -> list[Message]:
        """Removes the stream's messages that need no later epoch than `epoch`."""
        waiting = self._by_stream.pop(key, deque())
        ready = [message for needed, message in waiting if needed <= epoch]
        for message in ready:
            self._account(key, message, -1)
        if rest := deque(entry for entry in waiting if entry[0] > epoch):
            self._by_stream[key] = rest
        return ready

    def messages(self) -> Iterator[Message]:
        """The waiting messages, those of a stream in order."""
        for waiting in self._by_stream.values():
            yield from (message for _, message in waiting)

    def drop_all(self) -> int:
        """Drops all messages; returns their number."""
        let_go = self.count
        while self._by_stream:
            self._drop(next(iter(self._by_stream)))
        return let_go

    def expire(self, now_ns: int) -> int:
        """Drops messages that waited too long; returns their number."""
        let_go = 0
        for key in list(self._by_stream):
            while key in self._by_stream and now_ns - self._by_stream[key][0][1][2] > HELD_NS:
                self._drop(key)
                let_go += 1
        return let_go

    def _drop(self, key: StreamKey) -> None:
        waiting = self._by_stream[key]
        self._account(key, waiting.popleft()[1], -1)
        if not waiting:
            del self._by_stream[key]

    def _account(self, key: StreamKey, message: Message, sign: int) -> None:
        self.count += sign
        self._bytes += sign * len(message[1])
        self._of_node[key[0]] += sign
        if not self._of_node[key[0]]:
            del self._of_node[key[0]]
