"""Pacing after an outage: back-off between connections to the broker, and the rate of the backlog.

After an outage of the broker a whole site returns at once, and live batches must not wait behind the
backlog. So each node starts its backlog slowly, at a random moment, goes faster with each message that is
acknowledged in time, and halves its rate with each late acknowledgement. No pause exceeds the span of a full
message, or an agent with short intervals would need hours.
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

_LEAST_SECONDS = 1.0  # between connections
_MOST_SECONDS = 60.0
_MOST_FAILURES = 10
_STABLE_SECONDS = 10.0  # a connection that lasted longer resets the back-off
_GOOD_FAILURES = 2  # failures that count after a shorter one that carried an acknowledgement


class BacklogRate:
    """When the next backlog message may be sent. Times are seconds of one monotonic clock.

    `live_per_second`: rate of live messages. `span_seconds`: time that a full backlog message covers.
    """

    def __init__(self, live_per_second: float, span_seconds: float, rng: random.Random) -> None:
        self._min_pause = 1 / max(_MIN_TOP_PER_SECOND, _LIVE_MULTIPLE * live_per_second)
        self._max_pause = max(min(_MAX_PAUSE_SECONDS, span_seconds), self._min_pause)
        self._pause = self._min_pause
        self._rng = rng
        self.in_flight: list[tuple[SpooledBatch, float]] = []
        """Unacknowledged backlog messages, and when they were sent."""
        self._connected = 0.0
        self._acks_seen = False
        self.due = 0.0
        """Time of the next `may_send`."""

    def connected(self, now: float, waiting_seconds: float) -> None:
        """Starts a session; the oldest unsent batch is `waiting_seconds` old."""
        self.in_flight = []  # the spool redelivers
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
            self.in_flight = []
        self.in_flight = [(m, sent) for m, sent in self.in_flight if now - sent < _LOST_SECONDS]
        late = any(now - sent > LATE_SECONDS for _, sent in self.in_flight)
        self.due = now + min(self._jittered_pause(), LATE_SECONDS if late else 1e9)
        return not late and len(self.in_flight) < MAX_IN_FLIGHT

    def lost(self, keys: Iterable[Key]) -> None:
        """Forgets the in-flight messages of these streams, which will be redelivered."""
        gone = set(keys)
        self.in_flight = [(message, sent) for message, sent in self.in_flight if message.key not in gone]

    def is_idle(self, now: float) -> bool:
        """Whether no backlog message is in flight."""
        return all(now - sent >= _LOST_SECONDS for _, sent in self.in_flight)

    def sent(self, batch: SpooledBatch, now: float) -> None:
        """Notes a message as in flight."""
        self.in_flight.append((batch, now))

    def acknowledged(self, ack: Ack, now: float) -> None:
        """Adapts the rate to an acknowledgement."""
        self._acks_seen = True
        covered = [sent for batch, sent in self.in_flight if _covers(ack, batch)]
        if not covered:
            return
        self.in_flight = [(m, sent) for m, sent in self.in_flight if not _covers(ack, m)]
        if now - min(covered) > LATE_SECONDS:  # one decrease per acknowledgement, however much it covers
            self._pause = min(self._pause * _SLOWER, self._max_pause)
            self.due = now + self._jittered_pause()
        else:
            self._pause = max(self._pause * _FASTER ** len(covered), self._min_pause)
            self.due = min(self.due, now + self._jittered_pause())

    def _jittered_pause(self) -> float:
        return self._pause * self._rng.uniform(0.75, 1.25)


class Backoff:
    """Exponential back-off between connections, with jitter, reset by a connection that lasted.

    Two agents with the same client id disconnect each other; the back-off keeps them from doing so each
    second.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._failures = 0  # in a row

    def ended(self, lasted_seconds: float, *, good: bool) -> None:
        """Notes the end of a connection. `good`: the aggregator acknowledged a batch over it."""
        if lasted_seconds > _STABLE_SECONDS:
            self._failures = 0
        elif good:
            self._failures = min(self._failures, _GOOD_FAILURES)

    def pause_seconds(self) -> float:
        """Seconds to wait before the next attempt; each call doubles the next pause."""
        ceiling = min(_MOST_SECONDS, _LEAST_SECONDS * 2.0**self._failures)
        self._failures = min(self._failures + 1, _MOST_FAILURES)
        return ceiling * self._rng.uniform(0.5, 1.0)


def _covers(ack: Ack, batch: SpooledBatch) -> bool:
    low, high = batch.seqs
    return (ack.stream, ack.source) == batch.key and any(a <= low and high <= b for a, b in ack.ranges)
