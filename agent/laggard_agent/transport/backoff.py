"""Back-off between connections to the broker, reset by a connection that lasted.

Two agents with the same client id disconnect each other; the back-off keeps them from doing so each second.
"""

import random

_LEAST_SECONDS = 1.0
_MOST_SECONDS = 60.0
_MOST_FAILURES = 10
_STABLE_SECONDS = 10.0  # a connection that lasted longer resets the back-off
_GOOD_FAILURES = 2  # failures that count after a shorter one that carried an acknowledgement


class Backoff:
    """Exponential back-off with jitter."""

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
