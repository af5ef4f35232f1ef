"""One brick or client process as its dump file tells of it, dump after dump."""

from laggard_agent.collectors.gluster.dump import Dump
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

    Every mount of a volume on one node writes to the same file, each over the other's. One of them is
    followed: another's dumps are counted in `foreign` and not used, until the one that is followed has
    written nothing for ten seconds and three intervals. A brick has its file for itself, so that one which
    was restarted is followed at once. `dump` and `values` are of the one that is followed, None and empty at
    first.
    """

    def __init__(self) -> None:
        self.dump: Dump | None = None
        self.values: dict[str, int | None] = {}
        self.foreign = 0
        self._start_time_s = 0
        self._seen_ns = 0
        self._sums = LatencySums()

    def take(self, dump: Dump, written_ns: int, now_ns: int) -> None:
        """A dump that was written at `written_ns` (wall clock) and read at `now_ns` (monotonic)."""
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

    def _is_other(self, dump: Dump, start_time_s: int) -> bool:
        """Whether the dump is not of the process that is followed; its file may be slow."""
        if self.dump is None:
            return True
        moved_s = abs(start_time_s - self._start_time_s)
        if dump.is_brick and dump.uptime_s >= self.dump.uptime_s:
            return moved_s > _SLOW_DISK_SECONDS
        return moved_s > _SAME_START_SECONDS

    def _values(self, dump: Dump) -> dict[str, int | None]:
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
    """What the values of that name are."""
    if name in _OWN:
        return _OWN[name]
    if name.endswith("_latency_ns"):
        return Field(name, unit="ns")
    if name.startswith("bytes_"):
        return Field(name, unit="bytes")
    if name.startswith(("read_", "write_")):
        return Field(name, FieldKind.HISTOGRAM)
    return Field(name, FieldKind.COUNTER if name.startswith("fop_") else FieldKind.GAUGE)
