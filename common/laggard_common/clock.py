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
    """The clocks of this host: the functions themselves, as an agent reads them at every tick."""

    wall_ns = staticmethod(time.time_ns)
    monotonic_ns = staticmethod(time.monotonic_ns)
