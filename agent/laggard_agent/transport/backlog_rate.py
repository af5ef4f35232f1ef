"""How fast the backlog of an outage goes out: behind live data, and as fast as the aggregator keeps up.

A whole site comes back at once after an outage of its broker, and what its nodes send live must not wait
behind what they send of the past. So each begins slowly, at a moment of its own, goes faster with every
message that is acknowledged soon, and half as fast with every acknowledgement that comes late. No pause is
longer than the time that a full message is about: an agent that samples often would not be done for hours.
"""

import random
from collections.abc import Iterable

from laggard_agent.spool.segments import Key, Stored
from laggard_common.wire import Ack

UNACKNOWLEDGED = 4
"""Messages of the backlog under way at most."""

SOON_SECONDS = 2.5
"""An aggregator that keeps up acknowledges once a second; of what waits longer at most one is under way."""

_SHORT_SECONDS = 60.0  # an outage that is over with a message for each source
_MOST_PAUSE_SECONDS = 60.0
_FIRST_SHARE = 0.5  # of the longest pause
_FASTER, _SLOWER = 0.7, 2.0
_SPEED = 5  # messages a second for each that is made, at most
_LEAST_PER_SECOND = 2.0
_ANYONE_SECONDS = 30.0  # where nothing was acknowledged for so long, nobody acknowledges
_LOST_SECONDS = 60.0  # the spool has what was not acknowledged for so long sent again


class Pace:
    """When the next message of the backlog may go. Times are of one monotonic clock, seconds.

    `live_per_second`: messages that are made meanwhile. `span_seconds`: the time that a full one of the
    backlog is about.
    """

    def __init__(self, live_per_second: float, span_seconds: float, rng: random.Random) -> None:
        self._least_pause = 1 / max(_LEAST_PER_SECOND, _SPEED * live_per_second)
        self._most_pause = max(min(_MOST_PAUSE_SECONDS, span_seconds), self._least_pause)
        self._pause = self._least_pause
        self._rng = rng
        self._under_way: list[tuple[Stored, float]] = []
        self._connected = 0.0
        self._heard = False
        self.due = 0.0
        """When to ask whether one may go."""

    def connected(self, now: float, waiting_seconds: float) -> None:
        """A connection begins, and the oldest of what waits for it is so old.

        What was under way in the connection before is sent again, if need be, by the spool.
        """
        self._under_way = []
        self._heard = False
        self._connected = now
        self._pause = self._least_pause
        if waiting_seconds > _SHORT_SECONDS:
            self._pause = max(_FIRST_SHARE * self._most_pause, self._least_pause)
        self.due = now + self._pause * self._rng.random()

    def may_send(self, now: float) -> bool:
        """Whether one may go at `now`. Where nobody acknowledges, a pause between two is the only bound."""
        if not self._heard and now - self._connected > _ANYONE_SECONDS:
            self._pause = self._least_pause
            self._under_way = []
        self._under_way = [(m, sent) for m, sent in self._under_way if now - sent < _LOST_SECONDS]
        late = any(now - sent > SOON_SECONDS for _, sent in self._under_way)
        self.due = now + min(self._pause * self._rng.uniform(0.75, 1.25), SOON_SECONDS if late else 1e9)
        return not late and len(self._under_way) < UNACKNOWLEDGED

    def lost(self, keys: Iterable[Key]) -> None:
        """What is under way of these streams is not waited for: it is sent again."""
        gone = set(keys)
        self._under_way = [(message, sent) for message, sent in self._under_way if message.key not in gone]

    def is_idle(self, now: float) -> bool:
        """Whether nothing of the backlog is under way, as far as is known."""
        return all(now - sent >= _LOST_SECONDS for _, sent in self._under_way)

    def sent(self, stored: Stored, now: float) -> None:
        """A message went."""
        self._under_way.append((stored, now))

    def acknowledged(self, ack: Ack, now: float) -> None:
        """An acknowledgement came, of this node's batches or of others."""
        self._heard = True
        covered = [sent for stored, sent in self._under_way if _covers(ack, stored)]
        if not covered:
            return
        self._under_way = [(m, sent) for m, sent in self._under_way if not _covers(ack, m)]
        if now - min(covered) > SOON_SECONDS:  # one answer says once that it was late, however much it covers
            self._pause = min(self._pause * _SLOWER, self._most_pause)
            self.due = now + self._pause * self._rng.uniform(0.75, 1.25)
        else:
            self._pause = max(self._pause * _FASTER ** len(covered), self._least_pause)
            self.due = min(self.due, now + self._pause * self._rng.uniform(0.75, 1.25))


def _covers(ack: Ack, stored: Stored) -> bool:
    low, high = stored.seqs
    return (ack.stream, ack.source) == stored.key and any(a <= low and high <= b for a, b in ack.ranges)
