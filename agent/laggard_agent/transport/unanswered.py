"""Signs that the broker or the aggregator does not take the messages of the agent.

MQTT 3.1.1 has no answer for a message that the broker refuses (its ACL, a limit of its size): it acknowledges
it, or closes the connection, as for an aggregator that is not there.
"""

LIMIT_SECONDS = 60.0
"""Time without an acknowledgement, which the aggregator sends every second, before it is reported."""


class Unanswered:
    """Messages that were published and not acknowledged. Times are seconds of one monotonic clock.

    `by_aggregator` False: only the broker acknowledges. `largest_bytes`: the largest packet so far.
    """

    def __init__(self, *, by_aggregator: bool) -> None:
        self._by_aggregator = by_aggregator
        self._since: float | None = None
        self._is_reported = False
        self._in_flight: list[int] = []
        self.largest_bytes = 0

    def sending(self, size: int) -> None:
        """A packet of `size` bytes is on its way."""
        self._in_flight.append(size)
        self.largest_bytes = max(self.largest_bytes, size)

    def sent(self, size: int) -> None:
        """The broker acknowledged a packet of `size` bytes."""
        self._in_flight.remove(size)

    def lost_bytes(self) -> int:
        """Size of the largest packet that was on its way when the connection was lost, 0 for none; once."""
        sizes, self._in_flight = self._in_flight, []
        return max(sizes, default=0)

    def published(self, now: float) -> None:
        """A batch is with the broker."""
        if self._since is None and self._by_aggregator:
            self._since = now

    def acknowledged(self) -> bool:
        """The aggregator acknowledged batches; True when their lack was reported."""
        was_reported, self._is_reported = self._is_reported, False
        self._since = None
        return was_reported

    def disconnected(self) -> None:
        """The session ended, so that no acknowledgement is expected."""
        self._since = None

    def seconds(self, now: float) -> float:
        """Seconds for which batches have been published without an acknowledgement."""
        return 0.0 if self._since is None else max(now - self._since, 0.0)

    def is_due(self, now: float) -> bool:
        """True once, when the lack of acknowledgements is to be reported."""
        if self._is_reported or self.seconds(now) < LIMIT_SECONDS:
            return False
        self._is_reported = True
        return True
