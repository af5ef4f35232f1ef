"""Messages between the connection and the intake, so that neither waits for the other.

Live data must not wait behind what an outage left, nor a node behind another that floods, nor those who are
known behind a million strangers. So joined batches, what a node sends while much of it waits already, and
what comes from nodes that are not known yet stand behind everything else, and are taken when there is nothing
else.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import islice

from laggard_common.wire import VERSION, Kind

Received = tuple[str, bytes, int]
"""Topic, payload, and when it came (ns since the epoch, the aggregator's clock)."""

BURST = 256
BEHIND_AT_ONCE = 16
"""So many are taken of those behind before others are looked for again."""

MOST_OF_NODE = 256
"""So many messages of a node may wait in front."""

BEHIND_OF_NODE = 8192
"""So many of a node may wait in all."""

BEHIND_BYTES = 256 * 1024 * 1024

_JOINED = bytes((0x9C, VERSION, Kind.JOINED))
"""How a message with joined batches begins: an array of twelve, the version, the kind."""


class Inbox:
    """Two bounded queues that are emptied in bursts. What comes while one is full is dropped and counted.

    `is_known`: whether a node of that name has its place in front.
    """

    def __init__(self, most: int, is_known: Callable[[str], bool] = lambda _: True) -> None:
        self.dropped = 0
        self._most = most
        self._is_known = is_known
        self._front: deque[Received] = deque()
        self._behind: deque[Received] = deque()
        self._behind_bytes = 0
        self._of_node: Counter[str] = Counter()
        self._some = asyncio.Event()

    def __len__(self) -> int:
        return len(self._front) + len(self._behind)

    def put(self, messages: Sequence[Received]) -> list[bool]:
        """Adds messages as far as there is room; which of them `burst` will give. Never waits."""
        in_front = []
        for message in messages:
            node, payload = _node(message[0]), message[1]
            waiting = self._of_node[node]
            front = (
                waiting < MOST_OF_NODE
                and not payload.startswith(_JOINED)
                and self._is_known(node.rpartition("/")[2])
            )
            room = len(self._front) < self._most if front else self._room_behind(waiting, len(payload))
            in_front.append(front and room)
            if not room:
                self.dropped += 1
                continue
            self._of_node[node] = waiting + 1
            if front:
                self._front.append(message)
            else:
                self._behind.append(message)
                self._behind_bytes += len(payload)
        if len(self):
            self._some.set()
        return in_front

    async def some(self) -> None:
        """Waits until there is a message."""
        await self._some.wait()

    def burst(self) -> list[Received]:
        """Up to BURST of the messages in front, in the order of their coming; empty without any."""
        return self._taken(self._front, BURST)

    def behind(self) -> list[Received]:
        """A few of the messages behind; empty while there is one in front."""
        taken = [] if self._front else self._taken(self._behind, BEHIND_AT_ONCE)
        self._behind_bytes -= sum(len(payload) for _, payload, _ in taken)
        return taken

    def _room_behind(self, waiting: int, size: int) -> bool:
        return (
            waiting < BEHIND_OF_NODE
            and len(self._behind) < self._most
            and self._behind_bytes + size <= BEHIND_BYTES
        )

    def _taken(self, queue: deque[Received], most: int) -> list[Received]:
        taken = list(islice(queue, most))
        for topic, _, _ in taken:
            queue.popleft()
            node = _node(topic)
            self._of_node[node] -= 1
            if not self._of_node[node]:
                del self._of_node[node]
        if not len(self):
            self._some.clear()
        return taken


def _node(topic: str) -> str:
    """The node's part of a topic: `laggard/1/<site>/<role>/<node>`, or what there is of it."""
    return "/".join(topic.split("/", 5)[:5])
