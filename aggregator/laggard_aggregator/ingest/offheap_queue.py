"""Queue of messages as bytes in memory-mapped blocks.

Python objects of a long queue lie among objects that stay, and the interpreter returns memory by the MiB, so
that one surviving object keeps it. A block is returned to the system with its last message.
"""

import mmap
from collections import deque
from struct import Struct

from laggard_aggregator.ingest.batches import Message

BLOCK_BYTES = 256 * 1024
"""A longer message has its own block."""

_HEAD = Struct("<IIq")  # bytes of the topic and of the payload, receive time


class OffheapQueue:
    """First in, first out; an empty queue holds no block."""

    def __init__(self) -> None:
        self._blocks: deque[mmap.mmap] = deque()
        self._read_at = 0  # in the first block
        self._ends: deque[int] = deque()  # bytes written in each block
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, message: Message) -> None:
        """Adds a message."""
        topic, payload, received_ns = message
        name = topic.encode()
        record = _HEAD.pack(len(name), len(payload), received_ns) + name + payload
        if not self._blocks or self._ends[-1] + len(record) > len(self._blocks[-1]):
            self._blocks.append(mmap.mmap(-1, max(BLOCK_BYTES, len(record))))
            self._ends.append(0)
        start = self._ends[-1]
        self._blocks[-1][start : start + len(record)] = record
        self._ends[-1] = start + len(record)
        self._count += 1

    def popleft(self) -> Message:
        """Removes the oldest message. Raises IndexError on an empty queue."""
        if not self._count:
            raise IndexError("no message waits")
        while self._read_at == self._ends[0]:
            self._next_block()
        block, at = self._blocks[0], self._read_at
        name_size, size, received_ns = _HEAD.unpack_from(block, at)
        body = at + _HEAD.size + name_size
        topic, payload = block[at + _HEAD.size : body].decode(), block[body : body + size]
        self._read_at = body + size
        self._count -= 1
        if not self._count:
            self._next_block()
        return topic, payload, received_ns

    def _next_block(self) -> None:
        self._blocks.popleft().close()
        self._ends.popleft()
        self._read_at = 0
