"""How much one client may send to the built-in broker: a bucket of packets and one of bytes.

What is too fast is not dropped but read later, so that TCP holds the client back.
"""

import asyncio
import logging

_log = logging.getLogger(__name__)

PACKETS_PER_SECOND = 200.0
"""Ten collectors at 0.05 s; amqtt takes in some thousands a second of all clients together."""

PACKETS_AT_ONCE = 1000.0
BYTES_PER_SECOND = 1024.0 * 1024.0
BYTES_AT_ONCE = 4 * 1024.0 * 1024.0
"""The largest packet, or a backlog's largest messages."""


class Allowance:
    """What the client of that name may still send. Times are the event loop's, seconds."""

    def __init__(self, name: str, now: float) -> None:
        self._name = name
        self._told = False
        self._packets, self._bytes = PACKETS_AT_ONCE, BYTES_AT_ONCE
        self._at = now

    def spend(self, size: int, now: float) -> None:
        """Takes in that a packet of so many bytes was read; it may have been more than was left."""
        passed, self._at = now - self._at, now
        self._packets = min(self._packets + passed * PACKETS_PER_SECOND, PACKETS_AT_ONCE) - 1
        self._bytes = min(self._bytes + passed * BYTES_PER_SECOND, BYTES_AT_ONCE) - size

    def wait_seconds(self, now: float) -> float:
        """How long nothing is to be read of it; 0 or less when it may send."""
        owed = max(-self._packets / PACKETS_PER_SECOND, -self._bytes / BYTES_PER_SECOND)
        return owed - (now - self._at)

    async def wait(self) -> None:
        """Waits until it may send again. Logs the first time that it may not."""
        seconds = self.wait_seconds(asyncio.get_running_loop().time())
        if seconds <= 0:
            return
        if not self._told:
            self._told = True
            _log.warning("node %s sends too fast: the embedded broker reads it slowly", self._name)
        await asyncio.sleep(seconds)
