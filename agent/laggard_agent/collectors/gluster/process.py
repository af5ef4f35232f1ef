"""One brick or client process, followed through its dumps."""

from laggard_agent.collectors.gluster.dump import ProcessDump
from laggard_agent.collectors.gluster.latency import LatencySums
from laggard_common.wire.schema import Field, FieldKind

START_TIME = Field("start_time", FieldKind.GAUGE, "s")
INTERVAL = Field("sample_interval_ms", FieldKind.GAUGE, "ms")
_OWN = {START_TIME.name: START_TIME, INTERVAL.name: INTERVAL}

_SAME_START_SECONDS = 2  # uptime is whole seconds, and the file is written a little later
_SLOW_DISK_SECONDS = 60
_HOLD_SECONDS = 10.0
_HOLD_INTERVALS = 3.0


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
