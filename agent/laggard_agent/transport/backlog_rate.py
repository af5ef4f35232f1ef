"""Rate of the backlog after an outage: faster with each timely acknowledgement, halved by a late one.

After an outage of the broker a whole site returns at once, and live batches must not wait behind the
backlog. So each node starts slowly, at a random moment, goes faster with each message that is acknowledged in
time, and halves its rate with each late acknowledgement. No pause exceeds the span of a full message, or an
agent with short intervals would need hours.
"""

import random
from collections.abc import Iterable

from laggard_agent.spool.segments import Key, SpooledBatch
from laggard_common.wire import Ack

MAX_IN_FLIGHT = 4
"""Backlog messages that may be unacknowledged at once."""

LATE_SECONDS = 2.5
"""An aggregator that keeps up acknowledges once a second. An older message in flight stops the backlog."""

_SHORT_OUTAGE_SECONDS = 60.0  # shorter outages need one message per source: no slow start
_MAX_PAUSE_SECONDS = 60.0
_FIRST_SHARE = 0.5  # of the longest pause
_FASTER, _SLOWER = 0.7, 2.0
_LIVE_MULTIPLE = 5  # highest rate, as a multiple of the live rate
_MIN_TOP_PER_SECOND = 2.0
_NO_ACK_SECONDS = 30.0  # without any acknowledgement for so long, no aggregator acknowledges
_LOST_SECONDS = 60.0  # the spool redelivers messages unacknowledged for so long


class BacklogRate:
    """When the next backlog message may be sent. Times are seconds of one monotonic clock.

    `live_per_second`: rate of live messages. `span_seconds`: time that a full backlog message covers.
    """

    def __init__(self, live_per_second: float, span_seconds: float, rng: random.Random) -> None:
        self._min_pause = 1 / max(_MIN_TOP_PER_SECOND, _LIVE_MULTIPLE * live_per_second)
        self._max_pause = max(min(_MAX_PAUSE_SECONDS, span_seconds), self._min_pause)
        self._pause = self._min_pause
        self._rng = rng
        self._in_flight: list[tuple[SpooledBatch, float]] = []
        self._connected = 0.0
        self._acks_seen = False
        self.due = 0.0
        """Time of the next `may_send`."""

    def connected(self, now: float, waiting_seconds: float) -> None:
        """Starts a session; the oldest unsent batch is `waiting_seconds` old."""
        self._in_flight = []  # the spool redelivers
        self._acks_seen = False
        self._connected = now
        self._pause = self._min_pause
        if waiting_seconds > _SHORT_OUTAGE_SECONDS:
            self._pause = max(_FIRST_SHARE * self._max_pause, self._min_pause)
        self.due = now + self._pause * self._rng.random()

    def may_send(self, now: float) -> bool:
        """Whether a message may be sent at `now`. Without acknowledgements only the pause limits the rate."""
        if not self._acks_seen and now - self._connected > _NO_ACK_SECONDS:
            self._pause = self._min_pause
            self._in_flight = []
        self._in_flight = [(m, sent) for m, sent in self._in_flight if now - sent < _LOST_SECONDS]
        late = any(now - sent > LATE_SECONDS for _, sent in self._in_flight)
        self.due = now + min(self._jittered_pause(), LATE_SECONDS if late else 1e9)
        return not late and len(self._in_flight) < MAX_IN_FLIGHT

    def lost(self, keys: Iterable[Key]) -> None:
        """Forgets the in-flight messages of these streams, which will be redelivered."""
        gone = set(keys)
        self._in_flight = [(message, sent) for message, sent in self._in_flight if message.key not in gone]

    def is_idle(self, now: float) -> bool:
        """Whether no backlog message is in flight."""
        return all(now - sent >= _LOST_SECONDS for _, sent in self._in_flight)

    def sent(self, batch: SpooledBatch, now: float) -> None:
        """Notes a message as in flight."""
        self._in_flight.append((batch, now))

    def acknowledged(self, ack: Ack, now: float) -> None:
        """Adapts the rate to an acknowledgement."""
        self._acks_seen = True
        covered = [sent for batch, sent in self._in_flight if _covers(ack, batch)]
        if not covered:
            return
        self._in_flight = [(m, sent) for m, sent in self._in_flight if not _covers(ack, m)]
        if now - min(covered) > LATE_SECONDS:  # one decrease per acknowledgement, however much it covers
            self._pause = min(self._pause * _SLOWER, self._max_pause)
            self.due = now + self._jittered_pause()
        else:
            self._pause = max(self._pause * _FASTER ** len(covered), self._min_pause)
            self.due = min(self.due, now + self._jittered_pause())

    def _jittered_pause(self) -> float:
        return self._pause * self._rng.uniform(0.75, 1.25)


def _covers(ack: Ack, batch: SpooledBatch) -> bool:
    low, high = batch.seqs
    return (ack.stream, ack.source) == batch.key and any(a <= low and high <= b for a, b in ack.ranges)
