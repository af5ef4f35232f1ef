"""Clock interface: code that needs the time takes a clock, so tests can inject one."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall clock and monotonic clock of one host, in integer nanoseconds."""

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch; may step either way."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds since some start; never steps, stands still while the host is suspended."""
        ...


class SystemClock:
    """The clocks of this host, as the bare functions, since an agent reads them at every tick."""

    wall_ns = staticmethod(time.time_ns)
    monotonic_ns = staticmethod(time.monotonic_ns)
