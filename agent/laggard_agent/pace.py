"""How fast the backlog of an outage goes out: behind live data, and no faster than it is acknowledged.

A whole site comes back at once after an outage of its broker. Each agent then has a few messages under way
that the aggregator has not acknowledged, and no more: one that is busy slows all of them down, and what
they send live waits behind a few messages a node and not behind hours.
"""

from laggard_agent.spool_segments import Stored

UNACKNOWLEDGED = 4
"""Messages of the backlog under way."""

_SPEED = 5  # messages a second for each that is made
_LEAST_PER_SECOND = 2.0
_LEAST_PATIENCE_SECONDS = 10.0
_MOST_PATIENCE_SECONDS = 320.0
_ANYONE_SECONDS = 30.0  # where nothing was acknowledged for so long, nobody acknowledges


class Pace:
    """When the next message of the backlog may go. Times are of one monotonic clock, seconds."""

    def __init__(self, live_per_second: float) -> None:
        self._pause = 1 / max(_LEAST_PER_SECOND, _SPEED * live_per_second)
        self._under_way: list[Stored] = []
        self._patience = _LEAST_PATIENCE_SECONDS
        self._sent = 0.0
        self._connected = 0.0
        self.due = 0.0

    @property
    def under_way(self) -> tuple[Stored, ...]:
        """What was sent and is not known to be acknowledged."""
        return tuple(self._under_way)

    def connected(self, now: float) -> None:
        """A connection begins; what was under way in the one before is asked for again elsewhere."""
        self._under_way = []
        self._patience = _LEAST_PATIENCE_SECONDS
        self._connected = self._sent = now

    def sent(self, stored: Stored, now: float) -> None:
        """A message went."""
        self._under_way.append(stored)
        self._sent = now

    def may_send(self, waiting: list[Stored], now: float, *, acknowledged: bool) -> bool:
        """Whether one may go at `now`; when it may not, `due` is when to ask again.

        `waiting`: those of `under_way` that are not acknowledged yet. `acknowledged`: whether anything was in
        this connection. Where nobody acknowledges, the pause between two messages is the only bound.
        """
        self.due = now + self._pause
        if len(waiting) < len(self._under_way):
            self._patience = _LEAST_PATIENCE_SECONDS
        self._under_way = waiting
        if len(waiting) < UNACKNOWLEDGED:
            return True
        if not acknowledged and now - self._connected > _ANYONE_SECONDS:
            return True
        if now - self._sent < self._patience:
            return False
        self._patience = min(2 * self._patience, _MOST_PATIENCE_SECONDS)
        del self._under_way[0]  # lost, perhaps: one more goes instead
        return True
