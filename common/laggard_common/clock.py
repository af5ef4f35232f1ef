"""The seam to time: everything that needs a clock takes one, so that a test can be the clock."""

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks of one host, read in integer nanoseconds."""

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch; may step either way."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds since some start; never steps, stands still while the host is suspended."""
        ...


class SystemClock:
    """The clocks of this host."""

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """Nanoseconds of CLOCK_MONOTONIC."""
        return time.monotonic_ns()
