"""One brick or client process as its dump file tells of it, dump after dump."""

from laggard_agent.collectors.gluster.dump import Dump
from laggard_agent.collectors.gluster.latency import LatencySums
from laggard_common.schema import Field, FieldKind

START_TIME = Field("start_time", FieldKind.GAUGE, "s")
INTERVAL = Field("sample_interval_ms", FieldKind.GAUGE, "ms")

_SAME_START_SECONDS = 2  # uptime is whole seconds, and the file is written a little later
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
        self.values: dict[Field, int | None] = {}
        self.foreign = 0
        self._start_time_s = 0
        self._seen_ns = 0
        self._sums = LatencySums()

    def take(self, dump: Dump, written_ns: int, now_ns: int) -> None:
        """A dump that was written at `written_ns` (wall clock) and read at `now_ns` (monotonic)."""
        start = written_ns // 10**9 - dump.uptime_s
        if self.dump is None or abs(start - self._start_time_s) > _SAME_START_SECONDS:
            if self.dump is not None and not dump.is_brick:
                hold = max(_HOLD_SECONDS, _HOLD_INTERVALS * self.dump.interval_s)
                if now_ns - self._seen_ns < hold * 1e9:
                    self.foreign += 1
                    return
            self._start_time_s = start
            self._sums = LatencySums()
        self._seen_ns = now_ns
        self.dump = dump
        self.values = self._fields(dump)

    def _fields(self, dump: Dump) -> dict[Field, int | None]:
        sums = self._sums.add(dump.fops)
        fields: dict[Field, int | None] = {
            START_TIME: self._start_time_s,
            INTERVAL: round(dump.interval_s * 1000),
        }
        for name, value in dump.gauges.items():
            fields[Field(name.replace(".", "_"), FieldKind.GAUGE)] = value
        for name, value in dump.counts.items():
            if name.startswith("bytes_"):
                fields[Field(name, unit="bytes")] = value
            else:
                fields[Field(name, FieldKind.HISTOGRAM)] = value
        for name, fop in dump.fops.items():
            fields[Field(f"fop_{name}_count")] = fop.calls
            fields[Field(f"fop_{name}_latency_ns", unit="ns")] = sums[name]
        return fields
