"""Time that advice would save, by the job's own counters: requests left out, times their measured cost.

The cost is taken to be one a request, not one a byte, which holds for requests far below the size from which
on a network or a disk is busy with their bytes. Clients measure it without the kernel's part: FUSE, system
calls and the change of processes come on top. A job that does little but wait has some of the time that no
request explains added, by as much as leaves the promise right within 30 % should that time be the job's own.
"""

from dataclasses import dataclass
from typing import Final

SMALL_ENOUGH: Final = 16 * 2.0**10
"""Mean request up to which its cost is said to be one a request."""
ADVISED_REQUEST: Final = 64 * 2.0**10
"""Larger requests promise no more than this: they cost by the byte, and a kernel may divide them."""
MOST_ADDED: Final = 1.4
WAITING: Final = 0.5
"""Share of the active time in requests from which on a job does little but wait."""
LEAST_SAVED: Final = 1.0
LEAST_SHARE: Final = 0.1
"""Least gain as a share of the job's length; a gain below either limit is not mentioned."""


@dataclass(frozen=True, slots=True)
class RequestWaits:
    """Seconds that a node waits for requests, all its processes together; None unknown.

    `job`: length of the job; `active`: seconds of it with any I/O.
    """

    job: float
    active: float | None = None
    reads: float | None = None
    writes: float | None = None
    metadata: float | None = None

    @property
    def added(self) -> float:
        """Factor on the measured time, for the part of a request that clients do not measure."""
        if self.active is None or self.reads is None or self.writes is None or self.metadata is None:
            return 1.0
        total = self.reads + self.writes + self.metadata
        if total <= 0 or total < WAITING * self.active:
            return 1.0
        return min(max(self.active / total, 1.0), MOST_ADDED)


UNKNOWN_WAITS: Final = RequestWaits(0.0)


def of_larger_requests(waiting: RequestWaits, spent: float | None, mean: float) -> float | None:
    """Seconds a node saves by requests larger than `mean` bytes; None where the counters cannot tell."""
    return None if mean > SMALL_ENOUGH else _saved(waiting, spent, 1 - mean / ADVISED_REQUEST)


def of_no_requests(waiting: RequestWaits, spent: float | None) -> float | None:
    """Seconds a node saves by nearly no requests any more; None where the counters cannot tell."""
    return _saved(waiting, spent, 1.0)


def _saved(waiting: RequestWaits, spent: float | None, share: float) -> float | None:
    """None also for more than the length of the job: several processes wait side by side."""
    if spent is None or spent > waiting.job:
        return None
    saved = min(spent * share * waiting.added, waiting.job)
    return saved if saved >= max(LEAST_SAVED, LEAST_SHARE * waiting.job) else None


def seconds(value: float) -> str:
    """A time in a unit that a reader knows: 7.4 s, 38 s, 12 min, 3.2 h."""
    if value < 99.5:
        return f"{value:.2g} s"
    return f"{value / 60:.2g} min" if value < 5970 else f"{value / 3600:,.1f} h"
