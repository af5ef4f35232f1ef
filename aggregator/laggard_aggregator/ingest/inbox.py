"""Messages between the connection and the intake, so that neither waits for the other."""

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice

Received = tuple[str, bytes, int]
"""Topic, payload, and when it came (ns since the epoch, the aggregator's clock)."""

BURST = 256


class Inbox:
    """A bounded queue that is emptied in bursts. What comes while it is full is dropped and counted."""

    def __init__(self, most: int) -> None:
        self.dropped = 0
        self._most = most
        self._messages: deque[Received] = deque()
        self._some = asyncio.Event()

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, messages: Sequence[Received]) -> int:
        """Adds messages as long as there is room; how many. Never waits."""
        room = self._most - len(self._messages)
        if len(messages) > room:
            self.dropped += len(messages) - room
            messages = messages[:room]
        self._messages.extend(messages)
        if messages:
            self._some.set()
        return len(messages)

    async def some(self) -> None:
        """Waits until there is a message."""
        await self._some.wait()

    def burst(self) -> list[Received]:
        """Up to BURST of the messages that are there, in the order of their coming; empty without any."""
        taken = list(islice(self._messages, BURST))
        for _ in taken:
            self._messages.popleft()
        if not self._messages:
            self._some.clear()
        return taken
