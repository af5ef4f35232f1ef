"""How long the agent waits before it tries the broker again: ever longer, until a connection was good for
something.

Two agents that share a client id end each other's connections at once, and must not do so every second.
"""

import random

_LEAST_SECONDS = 1.0
_MOST_SECONDS = 60.0
_MOST_FAILURES = 10
_STABLE_SECONDS = 10.0  # a connection that lasted so long begins the pauses anew
_GOOD_FAILURES = 2  # and one that was good for an acknowledgement begins with such of some seconds


class Reconnecting:
    """The pauses between one connection, or a try at one, and the next."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._failures = 0  # in a row

    def ended(self, lasted_seconds: float, *, good: bool) -> None:
        """A connection that lasted so long is lost. `good`: the aggregator acknowledged something over it."""
        if lasted_seconds > _STABLE_SECONDS:
            self._failures = 0
        elif good:
            self._failures = min(self._failures, _GOOD_FAILURES)

    def pause_seconds(self) -> float:
        """How long to wait now; longer the next time, unless a connection `ended` meanwhile."""
        ceiling = min(_MOST_SECONDS, _LEAST_SECONDS * 2.0**self._failures)
        self._failures = min(self._failures + 1, _MOST_FAILURES)
        return ceiling * self._rng.uniform(0.5, 1.0)
