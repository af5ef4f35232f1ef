"""The aggregator's clock on a host of a test."""

from laggard_aggregator.windows.schedule import WindowClock
from laggard_common.clock import Clock


def window_clock(host: Clock) -> WindowClock:
    """The clock of windows for the clocks of `host`."""
    return WindowClock(host.wall_ns, host.monotonic_ns)
