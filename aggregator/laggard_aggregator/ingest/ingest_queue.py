"""Messages between the connection and the intake, so that neither waits for the other.

Live data must not wait behind what an outage left, nor a node behind another that floods, nor those who are
known behind a million strangers. So joined batches, what a node sends while much of it waits already, and
what comes from nodes that are not known yet stand behind everything else, and are taken when there is nothing
else.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from laggard_aggregator.ingest.flood_detector import Senders
from laggard_aggregator.ingest.offheap_queue import PackedQueue, Received
from laggard_common.wire import VERSION, Kind
from laggard_common.wire.limits import MAX_MESSAGE_BYTES

BURST = 256
BEHIND_AT_ONCE = 16
"""So many are taken of those behind before others are looked for again."""

MOST_BYTES = 256 * 1024**2
"""What all that waits may take of memory, unless the configuration says otherwise."""

ENTRY_BYTES = 512
"""What a message takes besides topic and payload at most: its objects, and what is noted of its node."""


@dataclass(slots=True)
class Amount:
    """Messages, and bytes that they take: what waits, or the most that may."""

    messages: int = 0
    size_bytes: int = 0

    def leaves_room(self, most: "Amount", size: int) -> bool:
        """Whether one more message, of that size, is within `most`."""
        return self.messages < most.messages and self.size_bytes + size <= most.size_bytes

    def change(self, messages: int, size: int) -> None:
        """Takes in that there are more, or with negative numbers fewer."""
        self.messages += messages
        self.size_bytes += size


OF_NODE_IN_FRONT = Amount(256, MAX_MESSAGE_BYTES)
"""What of a node waits beyond that waits behind, but for a message that waits alone."""

OF_NODE = Amount(8192, 8 * MAX_MESSAGE_BYTES)
"""So much of a node may wait in all, in front and behind."""

_JOINED = bytes((0x9C, VERSION, Kind.JOINED))
"""How a message with joined batches begins: an array of twelve, the version, the kind."""


class Inbox:
    """Two bounded queues that are emptied in bursts. What comes while one is full is dropped and counted.

    `most`: messages in each of them; `most_bytes`: what both may take of memory, a half each. `is_known`:
    whether a node of that name has its place in front. `senders`: who sends how much.
    """

    def __init__(
        self, most: int, most_bytes: int = MOST_BYTES, is_known: Callable[[str], bool] = lambda _: True
    ) -> None:
        self.dropped = 0
        self.senders = Senders()
        self._most = Amount(most, most_bytes // 2)
        self._is_known = is_known
        self._front: deque[Received] = deque()
        self._in_front = Amount()
        self._behind = PackedQueue()
        self._is_behind = Amount()
        self._of_node: dict[str, Amount] = {}  # of those of whom something waits
        self._some = asyncio.Event()

    def __len__(self) -> int:
        return len(self._front) + len(self._behind)

    @property
    def size_bytes(self) -> int:
        """What the messages that wait take of memory."""
        return self._in_front.size_bytes + self._is_behind.size_bytes

    def put(self, messages: Sequence[Received]) -> list[bool]:
        """Adds messages as far as there is room; which of them `burst` will give. Never waits."""
        in_front = []
        for message in messages:
            node, size = _node(message[0]), _size(message)
            self.senders.add(node)
            of_node = self._of_node.get(node)
            front = (
                (of_node is None or of_node.leaves_room(OF_NODE_IN_FRONT, size))
                and not message[1].startswith(_JOINED)
                and self._is_known(node)
            )
            waiting = self._in_front if front else self._is_behind
            room = waiting.leaves_room(self._most, size) and (
                front or of_node is None or of_node.leaves_room(OF_NODE, size)
            )
            in_front.append(front and room)
            if not room:
                self.dropped += 1
                continue
            if of_node is None:
                of_node = self._of_node[node] = Amount()
            of_node.change(1, size)
            waiting.change(1, size)
            if front:
                self._front.append(message)
            else:
                self._behind.append(message)
        if len(self):
            self._some.set()
        return in_front

    async def some(self) -> None:
        """Waits until there is a message."""
        await self._some.wait()

    def burst(self) -> list[Received]:
        """Up to BURST of the messages in front, in the order of their coming; empty without any."""
        return self._taken(self._front, BURST, self._in_front)

    def behind(self) -> list[Received]:
        """A few of the messages behind; empty while there is one in front."""
        return [] if self._front else self._taken(self._behind, BEHIND_AT_ONCE, self._is_behind)

    def _taken(self, queue: deque[Received] | PackedQueue, most: int, waiting: Amount) -> list[Received]:
        taken = [queue.popleft() for _ in range(min(most, len(queue)))]
        for message in taken:
            node, size = _node(message[0]), _size(message)
            waiting.change(-1, -size)
            of_node = self._of_node[node]
            of_node.change(-1, -size)
            if not of_node.messages:
                del self._of_node[node]
        if not len(self):
            self._some.clear()
        return taken


def _size(message: Received) -> int:
    topic, payload, _ = message
    wide = 1 if topic.isascii() else 4
    return 2 * wide * len(topic) + len(payload) + ENTRY_BYTES  # the name of its node is kept once more


def _node(topic: str) -> str:
    """The node that a topic of `laggard/1/<site>/<role>/<node>/...` names, or what there is of it.

    Not its role: a node may write under all of them.
    """
    return topic.split("/", 5)[:5][-1]
