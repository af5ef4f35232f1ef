"""Block-layer metrics as sysstat defines them (iostat -x, sar -d), from /proc/diskstats.

The counters are those of the kernel's Documentation/admin-guide/iostats.rst. Discards count as I/O where the
kernel counts them (4.18 and later) and flushes do not, both as in sysstat. An interval without I/O has an
await of 0. `svctm` is included because the Intrepid paper uses it; sysstat has dropped it.
"""

from laggard_aggregator.metrics.definition import (
    KERNEL_MESSAGES,
    Metric,
    NextStep,
    SourceMetrics,
    amount,
    mean,
    ratio,
    total,
    transfer_charts,
)

SECTOR_BYTES = 512.0

_IOS = ("rd_ios", "wr_ios", "dc_ios")
_SECTORS = ("rd_sectors", "wr_sectors", "dc_sectors")
_MS = ("rd_ms", "wr_ms", "dc_ms")
_REQUESTS = (*_IOS, *_SECTORS)

_R_AWAIT = mean("ms", ("rd_ios",), ("rd_ms",))
_W_AWAIT = mean("ms", ("wr_ios",), ("wr_ms",))
_QUEUE = Metric("requests", +1, ("weighted_ms",), lambda d: d["weighted_ms"] / 1000 / d.seconds)
_UTIL = Metric("%", +1, ("io_ms",), lambda d: d["io_ms"] / 1000 / d.seconds * 100)

BLOCK = SourceMetrics(
    source="diskstats",
    place="disk",
    defaults=("await",),
    metrics={
        "await": mean("ms", _IOS, _MS),
        "r_await": _R_AWAIT,
        "w_await": _W_AWAIT,
        "tps": Metric("operations/s", 0, _IOS, lambda d: total(d, _IOS) / d.seconds),
        "rd_sec": Metric("sectors/s", 0, ("rd_sectors",), lambda d: d["rd_sectors"] / d.seconds),
        "wr_sec": Metric("sectors/s", 0, ("wr_sectors",), lambda d: d["wr_sectors"] / d.seconds),
        "avgrq_sz": Metric("sectors", 0, _REQUESTS, lambda d: ratio(total(d, _SECTORS), total(d, _IOS))),
        "avgqu_sz": _QUEUE,
        "svctm": mean("ms", _IOS, ("io_ms",)),
        "util": _UTIL,
    },
    load={
        "operations": amount("operations", _IOS),
        "throughput": Metric("bytes/s", 0, _SECTORS, lambda d: total(d, _SECTORS) * SECTOR_BYTES / d.seconds),
        "request_bytes": Metric(
            "bytes", 0, _REQUESTS, lambda d: ratio(total(d, _SECTORS), total(d, _IOS)) * SECTOR_BYTES
        ),
        "read_share": Metric("1", 0, _IOS, lambda d: ratio(d["rd_ios"], total(d, _IOS))),
        "busy_share": Metric("1", 0, ("io_ms",), lambda d: d["io_ms"] / 1000 / d.seconds),
    },
    charts={
        "r_await": _R_AWAIT,
        "w_await": _W_AWAIT,
        **transfer_charts(("rd_ios", "wr_ios"), ("rd_sectors", "wr_sectors"), SECTOR_BYTES),
        "queue": _QUEUE,
        "utilisation": _UTIL,
    },
    optional=("dc_ios", "dc_sectors", "dc_ms"),
    next_steps=(
        NextStep("the disk now, beside its neighbours", "ssh {node} iostat -x 5"),
        NextStep("its own error counters", "ssh {node} sudo smartctl -x /dev/{device}"),
        KERNEL_MESSAGES,
    ),
)

SOURCES = (BLOCK,)
