"""Calls and their time by operation, of one layer of a volume."""

from collections.abc import Mapping
from dataclasses import dataclass, field

DATA = ("READ", "WRITE")
MIN_CALLS = 20
"""Means of fewer calls are not judged."""
SLOW_NS = 1e6
"""Nor is a call that takes less."""


@dataclass(slots=True)
class GlusterLayer:
    """Counters of one client, brick, translator or disk.

    `fops`: calls and mean nanoseconds by operation; `held`: mean nanoseconds by operation that a call is in
    this layer and not in those below it, empty where the layers below are not known.
    """

    layer: str
    name: str
    fops: dict[str, tuple[int, float]] = field(default_factory=dict)
    bytes: int | None = None
    held: Mapping[str, float] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        """Reads and writes."""
        return sum(self.fops.get(fop, (0, 0.0))[0] for fop in DATA)

    @property
    def mean_ns(self) -> float:
        """Mean latency of reads and writes."""
        total = sum(calls * mean for calls, mean in (self.fops.get(fop, (0, 0.0)) for fop in DATA))
        return total / self.calls if self.calls else 0.0

    def mean_of(self, fop: str) -> float:
        """Mean nanoseconds of an operation; 0 below `MIN_CALLS`."""
        calls, mean = self.fops.get(fop, (0, 0.0))
        return mean if calls >= MIN_CALLS else 0.0


@dataclass(frozen=True, slots=True)
class GlusterFinding:
    """A candidate among the layers of a volume."""

    candidate: str
    text: str
    advice: str
    share: float | None = None
