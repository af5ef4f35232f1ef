"""Block-layer metrics as sysstat defines them (iostat -x, sar -d), from /proc/diskstats.

The counters are those of the kernel's Documentation/admin-guide/iostats.rst. Discards count as I/O where the
kernel counts them (4.18 and later) and flushes do not, both as in sysstat. An interval without I/O has an
await of 0. `svctm` is included because the Intrepid paper uses it; sysstat has dropped it.
"""

from laggard_aggregator.metrics.definition import (
    KERNEL_MESSAGES,
    Differences,
    FloatArray,
    Metric,
    NextStep,
    SourceMetrics,
    ratio,
)

SECTOR_BYTES = 512.0

_IOS = ("rd_ios", "wr_ios", "dc_ios")
_SECTORS = ("rd_sectors", "wr_sectors", "dc_sectors")
_MS = ("rd_ms", "wr_ms", "dc_ms")


def _total(d: Differences, counters: tuple[str, ...]) -> FloatArray:
    first, *others = counters
    total = d[first]
    for name in others:
        total += d[name]
    return total


def _await(d: Differences) -> FloatArray:
    return ratio(_total(d, _MS), _total(d, _IOS))


def _r_await(d: Differences) -> FloatArray:
    return ratio(d["rd_ms"], d["rd_ios"])


def _w_await(d: Differences) -> FloatArray:
    return ratio(d["wr_ms"], d["wr_ios"])


def _tps(d: Differences) -> FloatArray:
    return _total(d, _IOS) / d.seconds


def _rd_sec(d: Differences) -> FloatArray:
    return d["rd_sectors"] / d.seconds


def _wr_sec(d: Differences) -> FloatArray:
    return d["wr_sectors"] / d.seconds


def _avgrq_sz(d: Differences) -> FloatArray:
    return ratio(_total(d, _SECTORS), _total(d, _IOS))


def _avgqu_sz(d: Differences) -> FloatArray:
    return d["weighted_ms"] / 1000 / d.seconds


def _svctm(d: Differences) -> FloatArray:
    return ratio(d["io_ms"], _total(d, _IOS))


def _util(d: Differences) -> FloatArray:
    return d["io_ms"] / 1000 / d.seconds * 100


def _operations(d: Differences) -> FloatArray:
    return _total(d, _IOS)


def _throughput(d: Differences) -> FloatArray:
    return _total(d, _SECTORS) * SECTOR_BYTES / d.seconds


def _request_bytes(d: Differences) -> FloatArray:
    return _avgrq_sz(d) * SECTOR_BYTES


def _read_share(d: Differences) -> FloatArray:
    return ratio(d["rd_ios"], _total(d, _IOS))


def _busy_share(d: Differences) -> FloatArray:
    return d["io_ms"] / 1000 / d.seconds


BLOCK = SourceMetrics(
    source="diskstats",
    defaults=("await",),
    metrics={
        "await": Metric("ms", +1, (*_IOS, *_MS), _await),
        "r_await": Metric("ms", +1, ("rd_ios", "rd_ms"), _r_await),
        "w_await": Metric("ms", +1, ("wr_ios", "wr_ms"), _w_await),
        "tps": Metric("operations/s", 0, _IOS, _tps),
        "rd_sec": Metric("sectors/s", 0, ("rd_sectors",), _rd_sec),
        "wr_sec": Metric("sectors/s", 0, ("wr_sectors",), _wr_sec),
        "avgrq_sz": Metric("sectors", 0, (*_IOS, *_SECTORS), _avgrq_sz),
        "avgqu_sz": Metric("requests", +1, ("weighted_ms",), _avgqu_sz),
        "svctm": Metric("ms", +1, (*_IOS, "io_ms"), _svctm),
        "util": Metric("%", +1, ("io_ms",), _util),
    },
    load={
        "operations": Metric("operations", 0, _IOS, _operations, amount=True),
        "throughput": Metric("bytes/s", 0, _SECTORS, _throughput),
        "request_bytes": Metric("bytes", 0, (*_IOS, *_SECTORS), _request_bytes),
        "read_share": Metric("1", 0, _IOS, _read_share),
        "busy_share": Metric("1", 0, ("io_ms",), _busy_share),
    },
    optional=("dc_ios", "dc_sectors", "dc_ms"),
    next_steps=(
        NextStep("the disk now, beside its neighbours", "ssh {node} iostat -x 5"),
        NextStep("its own error counters", "ssh {node} sudo smartctl -x /dev/{device}"),
        KERNEL_MESSAGES,
    ),
)

SOURCES = (BLOCK,)
