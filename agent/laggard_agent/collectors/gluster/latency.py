"""Latency sums, computed because a dump has only means and the agent sends counters.

The mean since the process started times its calls is the sum, but the mean has only 24 bits: after a year the
error of the product is seconds, and it may decrease, which would look like a reset. The mean of the last
interval is precise. So the sum grows by *calls since the previous dump* times *mean of the interval* if the
interval is the time between the two dumps, otherwise by the difference of the two products.
"""

from collections.abc import Mapping

from laggard_agent.collectors.gluster.dump import Fop

_MOST = 2**64
_TOLERANCE_CALLS = 1.0  # of `per_sec`, which has two digits, times the interval
_TOLERANCE = 0.01  # the interval has two digits too


class LatencySums:
    """The sums of one process, in ns, dump after dump.

    It starts with calls times mean of the first dump, so that a restarted agent continues its counters.
    """

    def __init__(self) -> None:
        self._before: dict[str, Fop] = {}
        self._sums: dict[str, float] = {}

    def add(self, fops: Mapping[str, Fop]) -> dict[str, int | None]:
        """Sum of each operation as of this dump; None where the dump has no mean."""
        for name, fop in fops.items():
            before = self._before.get(name)
            if before is None or name not in self._sums:
                if fop.mean_ns is not None:
                    self._sums[name] = fop.calls * fop.mean_ns
            else:
                self._sums[name] += _rise(before, fop)
        self._before.update(fops)
        return {
            name: round(self._sums[name]) % _MOST if fop.mean_ns is not None and name in self._sums else None
            for name, fop in fops.items()
        }


def _rise(before: Fop, now: Fop) -> float:
    calls = now.calls - before.calls
    if calls <= 0:
        return 0.0
    off = abs(now.interval_calls - calls)
    if now.interval_mean_ns is not None and off <= max(_TOLERANCE_CALLS, _TOLERANCE * calls):
        return calls * now.interval_mean_ns
    if before.mean_ns is None or now.mean_ns is None:
        return 0.0
    return max(0.0, now.calls * now.mean_ns - before.calls * before.mean_ns)
