"""The bounded queue between the broker's connection and the machine, in a live and a deferred part.

Live data must not wait behind the backlog of an outage, nor a node behind another that floods, nor known
nodes behind a million unknown ones. So coalesced batches, messages of a node beyond its limit, and messages
of unknown nodes are deferred: they are taken when no live message waits.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from laggard_aggregator.ingest.batches import Message
from laggard_aggregator.ingest.flood_detector import FloodDetector
from laggard_aggregator.ingest.offheap_queue import OffheapQueue
from laggard_common.wire import VERSION, Kind
from laggard_common.wire.limits import MAX_MESSAGE_BYTES

BURST = 256
DEFERRED_AT_ONCE = 16
"""Deferred messages taken before live ones are looked for again."""

MAX_BYTES = 256 * 1024**2
"""Default limit of the queue's memory."""

ENTRY_BYTES = 512
"""Upper bound of a message's memory besides topic and payload: its objects, and the notes on its node."""


@dataclass(slots=True)
class Amount:
    """A number of messages and their bytes: queued, or the limit."""

    messages: int = 0
    size_bytes: int = 0

    def leaves_room(self, limit: "Amount", size: int) -> bool:
        """Whether one more message of `size` bytes is within `limit`."""
        return self.messages < limit.messages and self.size_bytes + size <= limit.size_bytes

    def change(self, messages: int, size: int) -> None:
        """Adds messages, or subtracts them where negative."""
        self.messages += messages
        self.size_bytes += size


NODE_LIVE = Amount(256, MAX_MESSAGE_BYTES)
"""Per-node limit of the live part; further messages are deferred, except the only message of a node."""

NODE_TOTAL = Amount(8192, 8 * MAX_MESSAGE_BYTES)
"""Per-node limit of both parts."""

_JOINED = bytes((0x9C, VERSION, Kind.JOINED))
"""First bytes of a message with coalesced batches: an array of twelve, the version, the kind."""


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
        self._limit = Amount(max_messages, max_bytes // 2)
        self._is_known = is_known
        self._live: deque[Message] = deque()
        self._live_amount = Amount()
        self._deferred = OffheapQueue()
        self._deferred_amount = Amount()
        self._node_amounts: dict[str, Amount] = {}  # of nodes with a queued message
        self._not_empty = asyncio.Event()

    def __len__(self) -> int:
        return len(self._live) + len(self._deferred)

    @property
    def size_bytes(self) -> int:
        """Memory of the queued messages."""
        return self._live_amount.size_bytes + self._deferred_amount.size_bytes

    def put(self, messages: Sequence[Message]) -> list[bool]:
        """Adds messages as far as there is room; for each whether it is live. Never waits."""
        are_live = []
        for message in messages:
            node, size = _node(message[0]), _size(message)
            self.senders.add(node)
            node_amount = self._node_amounts.get(node)
            live = (
                (node_amount is None or node_amount.leaves_room(NODE_LIVE, size))
                and not message[1].startswith(_JOINED)
                and self._is_known(node)
            )
            amount = self._live_amount if live else self._deferred_amount
            room = amount.leaves_room(self._limit, size) and (
                live or node_amount is None or node_amount.leaves_room(NODE_TOTAL, size)
            )
            are_live.append(live and room)
            if not room:
                self.dropped += 1
                continue
            if node_amount is None:
                node_amount = self._node_amounts[node] = Amount()
            node_amount.change(1, size)
            amount.change(1, size)
            if live:
                self._live.append(message)
            else:
                self._deferred.append(message)
        if len(self):
            self._not_empty.set()
        return are_live

    async def wait(self) -> None:
        """Waits until there is a message."""
        await self._not_empty.wait()

    def take_live(self) -> list[Message]:
        """Removes up to BURST live messages, oldest first."""
        return self._taken(self._live, BURST, self._live_amount)

    def take_deferred(self) -> list[Message]:
        """Removes a few deferred messages; none while a live one waits."""
        return [] if self._live else self._taken(self._deferred, DEFERRED_AT_ONCE, self._deferred_amount)

    def _taken(self, queue: deque[Message] | OffheapQueue, most: int, amount: Amount) -> list[Message]:
        taken = [queue.popleft() for _ in range(min(most, len(queue)))]
        for message in taken:
            node, size = _node(message[0]), _size(message)
            amount.change(-1, -size)
            node_amount = self._node_amounts[node]
            node_amount.change(-1, -size)
            if not node_amount.messages:
                del self._node_amounts[node]
        if not len(self):
            self._not_empty.clear()
        return taken


def _size(message: Message) -> int:
    topic, payload, _ = message
    char_bytes = 1 if topic.isascii() else 4
    return 2 * char_bytes * len(topic) + len(payload) + ENTRY_BYTES  # the node's name is stored once more


def _node(topic: str) -> str:
    """The node in a topic `laggard/1/<site>/<role>/<node>/...`, or its last level if it is shorter.

    Without its role: a node may publish under all of them.
    """
    return topic.split("/", 5)[:5][-1]
