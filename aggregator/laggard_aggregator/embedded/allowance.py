"""How much one client may send to the built-in broker: a bucket of packets and one of bytes.

What is too fast is not dropped but read later, so that TCP holds the client back.
"""

PACKETS_PER_SECOND = 200.0
"""Ten collectors at 0.05 s; amqtt takes in some thousands a second of all clients together."""

PACKETS_AT_ONCE = 1000.0
BYTES_PER_SECOND = 1024.0 * 1024.0
BYTES_AT_ONCE = 4 * 1024.0 * 1024.0
"""The largest packet, or a backlog's largest messages."""


class Allowance:
    """What one client may still send. Times are of one monotonic clock, seconds."""

    def __init__(self, now: float) -> None:
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
