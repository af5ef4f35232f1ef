"""Clocks that stand still until the test moves them."""

from dataclasses import dataclass


@dataclass(slots=True)
class FakeClock:
    """The wall clock and the monotonic clock, in ns."""

    wall: int = 1_700_000_000 * 10**9
    monotonic: int = 5 * 10**9

    def wall_ns(self) -> int:
        """The wall clock."""
        return self.wall

    def monotonic_ns(self) -> int:
        """The monotonic clock."""
        return self.monotonic

    def sleep(self, seconds: float) -> None:
        """Moves both clocks."""
        self.wall += round(seconds * 1e9)
        self.monotonic += round(seconds * 1e9)

    def step(self, seconds: float) -> None:
        """Sets the wall clock; the monotonic clock stays."""
        self.wall += round(seconds * 1e9)


@dataclass
class HandClock:
    """One time for both clocks, set by the test."""

    ns: int

    def wall_ns(self) -> int:
        """The time."""
        return self.ns

    def monotonic_ns(self) -> int:
        """The time."""
        return self.ns
