"""Sums of latencies, which a dump does not have: it has means, and counters are what travels.

The mean since the process began times its calls is the sum, but it is printed with 24 bits: after a year the
error of that product is seconds, and it may fall, which would look like a reset. The mean of the last
interval does not have that weakness. So the sum grows by *calls since the dump before* times *mean of the
interval*, if the interval is what lies between the two dumps, else by the difference of the two products.
"""

from collections.abc import Mapping

from laggard_agent.collectors.gluster.dump import Fop

_MOST = 2**64
_TOLERANCE_CALLS = 1.0  # of `per_sec`, which has two digits, times the interval
_TOLERANCE = 0.01  # the interval has two digits too


class LatencySums:
    """The sums of one process, in ns, dump after dump.

    It begins with calls times mean of the first dump, so that what a restarted agent says goes on from what
    it said before.
    """

    def __init__(self) -> None:
        self._before: dict[str, Fop] = {}
        self._sums: dict[str, float] = {}

    def add(self, fops: Mapping[str, Fop]) -> dict[str, int | None]:
        """The sum of each operation as of this dump; None where the dump has no mean."""
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
