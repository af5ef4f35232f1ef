"""One brick or client process, followed through its dumps.

Latency sums are computed because a dump has only means and the agent sends counters. The mean since the
process started times its calls is the sum, but the mean has only 24 bits: after a year the error of the
product is seconds, and it may decrease, which would look like a reset. The mean of the last interval is
precise. So the sum grows by *calls since the previous dump* times *mean of the interval* if the interval is
the time between the two dumps, otherwise by the difference of the two products.
"""

from collections.abc import Mapping

from laggard_agent.collectors.gluster.dump import Fop, ProcessDump
from laggard_common.trace_formats.kernel_text import MOST
from laggard_common.wire.schema import Field, FieldKind

START_TIME = Field("start_time", FieldKind.GAUGE, "s")
INTERVAL = Field("sample_interval_ms", FieldKind.GAUGE, "ms")
_OWN = {START_TIME.name: START_TIME, INTERVAL.name: INTERVAL}

_SAME_START_SECONDS = 2  # uptime is whole seconds, and the file is written a little later
_SLOW_DISK_SECONDS = 60
_HOLD_SECONDS = 10.0
_HOLD_INTERVALS = 3.0
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
            name: round(self._sums[name]) % MOST if fop.mean_ns is not None and name in self._sums else None
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


class Process:
    """Follows the process that writes a dump file.

    All mounts of a volume on one node overwrite the same file. One of them is followed: others' dumps are
    counted in `foreign` and ignored, until the followed one has written nothing for ten seconds and three
    intervals. A brick has a file of its own, so a restarted one is followed at once. `dump` and `values` are
    those of the followed process, None and empty at first.
    """

    def __init__(self) -> None:
        self.dump: ProcessDump | None = None
        self.values: dict[str, int | None] = {}
        self.foreign = 0
        self._start_time_s = 0
        self._seen_ns = 0
        self._sums = LatencySums()

    @property
    def is_whole(self) -> bool:
        """True when the dump was fully parsed."""
        return self.dump is not None and not self.dump.leftovers

    def add(self, dump: ProcessDump, written_ns: int, now_ns: int) -> None:
        """Adds a dump written at `written_ns` (wall clock) and read at `now_ns` (monotonic)."""
        start = written_ns // 10**9 - dump.uptime_s
        if self._is_other(dump, start):
            if self.dump is not None and not dump.is_brick:
                hold = max(_HOLD_SECONDS, _HOLD_INTERVALS * self.dump.interval_s)
                if now_ns - self._seen_ns < hold * 1e9:
                    self.foreign += 1
                    return
            self._start_time_s = start
            self._sums = LatencySums()
        self._seen_ns = now_ns
        self.dump = dump
        self.values = self._values(dump)

    def _is_other(self, dump: ProcessDump, start_time_s: int) -> bool:
        """True when the dump is not the followed process's; its file may lag."""
        if self.dump is None:
            return True
        moved_s = abs(start_time_s - self._start_time_s)
        if dump.is_brick and dump.uptime_s >= self.dump.uptime_s:
            return moved_s > _SLOW_DISK_SECONDS
        return moved_s > _SAME_START_SECONDS

    def _values(self, dump: ProcessDump) -> dict[str, int | None]:
        values: dict[str, int | None] = {
            START_TIME.name: self._start_time_s,
            INTERVAL.name: round(dump.interval_s * 1000),
        }
        for name, value in dump.gauges.items():
            values[name.replace(".", "_")] = value
        values.update(dump.counts)
        for name, total in self._sums.add(dump.fops).items():
            values[f"fop_{name}_count"] = dump.fops[name].calls
            values[f"fop_{name}_latency_ns"] = total
        return values


def field_of(name: str) -> Field:
    """Field of the values with this name."""
    if name in _OWN:
        return _OWN[name]
    if name.endswith("_latency_ns"):
        return Field(name, unit="ns")
    if name.startswith("bytes_"):
        return Field(name, unit="bytes")
    if name.startswith(("read_", "write_")):
        return Field(name, FieldKind.HISTOGRAM)
    return Field(name, FieldKind.COUNTER if name.startswith("fop_") else FieldKind.GAUGE)


ALWAYS = tuple(
    field_of(name)
    for name in (
        *("bytes_read", "bytes_written", "fop_read_count", "fop_read_latency_ns"),
        *("fop_write_count", "fop_write_latency_ns"),
    )
)
"""Columns from the first sample on; other counters get a column when they first count.

A brick has some 190 counters, most of which never count.
"""
