"""The bounded queue between the broker's connection and the machine, in a live and a deferred part.

Live data must not wait behind the backlog of an outage, nor a node behind another that floods, nor known
nodes behind a million unknown ones. So coalesced batches, messages of a node beyond its limit, and messages
of unknown nodes are deferred: they are taken when no live message waits. `FloodDetector`
finds a node that sends more than any agent does.
"""

import asyncio
import logging
import math
import mmap
from collections import Counter, deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple

from laggard_aggregator.ingest.batches import Message
from laggard_common.wire import VERSION, Kind
from laggard_common.wire.limits import MAX_MESSAGE_BYTES
from laggard_common.wire.topics import is_level

_log = logging.getLogger(__name__)

BURST = 256
DEFERRED_BURST = 64
DEFERRED_BYTES = 128 * 1024
"""Deferred messages taken before live ones are looked for again: usually some ms of work."""

MAX_BYTES = 256 * 1024**2
"""Default limit of the queue's memory."""

ENTRY_BYTES = 512
"""Upper bound of a message's memory besides topic and payload: its objects, and the notes on its node."""
_JOINED = bytes((0x9C, VERSION, Kind.JOINED))
"""First bytes of a message with coalesced batches: an array of twelve, the version, the kind."""
BLOCK_BYTES = 256 * 1024
"""A longer message has its own block."""
_HEAD = Struct("<IIq")  # bytes of the topic and of the payload, receive time
FLOOD_PER_SECOND = 200.0
"""Ten collectors at 0.05 s with one message per sample: more than any agent's configuration."""
MAX_SENDERS = 65_536


NODE_LIVE = (256, MAX_MESSAGE_BYTES)
"""Per-node limit of the live part, messages and bytes; others are deferred, except the only one of a node."""

NODE_TOTAL = (8192, 8 * MAX_MESSAGE_BYTES)
"""Per-node limit of both parts."""


class IngestQueue:
    """Messages beyond the limits are dropped and counted.

    `max_messages`: limit of each part. `max_bytes`: memory of both, a half each. `is_known`: whether a node's
    messages are live. `senders`: message rates by node.
    """

    def __init__(
        self, max_messages: int, max_bytes: int = MAX_BYTES, is_known: Callable[[str], bool] = lambda _: True
    ) -> None:
        self.dropped = 0
        self.senders = FloodDetector()
        self._limit = (max_messages, max_bytes // 2)
        self.is_known = is_known
        self._live: deque[Message] = deque()
        self._live_bytes = 0
        self._deferred = OffheapQueue()
        self._deferred_bytes = 0
        self._of_node: dict[str, tuple[int, int]] = {}  # messages and bytes of nodes with a queued message
        self._not_empty = asyncio.Event()

    def __len__(self) -> int:
        return len(self._live) + len(self._deferred)

    @property
    def size_bytes(self) -> int:
        """Memory of the queued messages."""
        return self._live_bytes + self._deferred_bytes

    def put(self, messages: Sequence[Message]) -> list[bool]:
        """Adds messages while there is room; for each whether it is live. Never waits."""
        are_live = []
        for message in messages:
            node, size = _node(message[0]), _size(message)
            self.senders.add(node)
            queued, queued_bytes = of_node = self._of_node.get(node, (0, 0))
            live = (
                (not queued or _has_room(of_node, size, NODE_LIVE))
                and not message[1].startswith(_JOINED)
                and self.is_known(node)
            )
            part = (
                (len(self._live), self._live_bytes) if live else (len(self._deferred), self._deferred_bytes)
            )
            room = _has_room(part, size, self._limit) and (
                live or not queued or _has_room(of_node, size, NODE_TOTAL)
            )
            are_live.append(live and room)
            if not room or not (live or self._defer(message)):
                self.dropped += 1
                continue
            self._of_node[node] = queued + 1, queued_bytes + size
            if live:
                self._live.append(message)
                self._live_bytes += size
            else:
                self._deferred_bytes += size
        if len(self):
            self._not_empty.set()
        return are_live

    def _defer(self, message: Message) -> bool:
        """Adds a deferred message; False where the kernel has no memory for it."""
        try:
            self._deferred.append(message)
        except OSError:
            return False
        return True

    async def wait(self) -> None:
        """Waits until there is a message."""
        await self._not_empty.wait()

    def take_live(self) -> list[Message]:
        """Removes up to BURST live messages, oldest first."""
        messages, size = self._taken(self._live, BURST)
        self._live_bytes -= size
        return messages

    def take_deferred(self) -> list[Message]:
        """Removes up to DEFERRED_BURST messages of about DEFERRED_BYTES; none while a live one waits."""
        if self._live:
            return []
        messages, size = self._taken(self._deferred, DEFERRED_BURST, DEFERRED_BYTES)
        self._deferred_bytes -= size
        return messages

    def _taken(
        self, queue: "deque[Message] | OffheapQueue", most: int, enough: float = math.inf
    ) -> tuple[list[Message], int]:
        """Removes up to `most` messages, until they have `enough` bytes; returns them and their size."""
        taken: list[Message] = []
        size = 0
        while len(queue) and len(taken) < most and size < enough:
            message = queue.popleft()
            taken.append(message)
            node, own = _node(message[0]), _size(message)
            size += own
            queued, queued_bytes = self._of_node.pop(node)
            if queued > 1:
                self._of_node[node] = queued - 1, queued_bytes - own
        if not len(self):
            self._not_empty.clear()
        return taken, size


def _has_room(queued: tuple[int, int], size: int, limit: tuple[int, int]) -> bool:
    """Whether one more message of `size` bytes is within `limit`, in messages and bytes."""
    return queued[0] < limit[0] and queued[1] + size <= limit[1]


def _size(message: Message) -> int:
    topic, payload, _ = message
    char_bytes = 1 if topic.isascii() else 4
    return 2 * char_bytes * len(topic) + len(payload) + ENTRY_BYTES  # the node's name is stored once more


def _node(topic: str) -> str:
    """The node in a topic `laggard/1/<site>/<role>/<node>/...`, or its last level if it is shorter.

    Without its role: a node may publish under all of them.
    """
    return topic.split("/", 5)[:5][-1]


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
        """Adds a message. Raises OSError, and adds nothing, without memory for a further block."""
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


class Flooding(NamedTuple):
    """A node and its mean message rate over a period."""

    node: str
    messages_per_second: float


class FloodDetector:
    """Counts messages by the node in their topic.

    `flooding`: the fastest node, if it is too fast. In two periods in a row: the broker's stored messages
    after an outage come in one burst.
    """

    def __init__(self) -> None:
        self.flooding: Flooding | None = None
        self._fast: str | None = None  # in the previous period
        self._came: Counter[str] = Counter()

    def add(self, node: str) -> None:
        """Counts a message, except those of invalid names and of names beyond MAX_SENDERS."""
        if node in self._came or (len(self._came) < MAX_SENDERS and is_level(node)):
            self._came[node] += 1

    def end_period(self, seconds: float) -> None:
        """Ends a period of `seconds`. Logs the start and the end of a flood once."""
        before, self.flooding = self.flooding, None
        fast_before, self._fast = self._fast, None
        for node, messages in self._came.most_common(1):
            if messages > FLOOD_PER_SECOND * seconds:
                self._fast = node
                if fast_before == node:
                    self.flooding = Flooding(node, messages / seconds)
        self._came.clear()
        if self.flooding is not None and (before is None or before.node != self.flooding.node):
            _log.warning("node %s sends %.0f messages a second: revoke its certificate?", *self.flooding)
        elif self.flooding is None and before is not None:
            _log.info("node %s no longer floods", before.node)
