"""`perf dump` of an OSD as counters: `avgcount` and `sum` of its latencies, requests and bytes.

Names are those of Ceph's src/osd/osd_perf_counters.cc and src/os/bluestore/BlueStore.cc; a pair `x` becomes
`x_count` and `x_us`, with `bluestore_` before those of BlueStore. `perf histogram dump` counts requests by
their latency and size; the axis of latencies is called `Latency (usec)` and is of nanoseconds.
"""

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from laggard_common.trace_formats.kernel_text import MOST
from laggard_common.wire.schema import Field, FieldKind

OSD_LATENCIES = (
    *("op_latency", "op_process_latency", "op_before_queue_op_lat", "op_before_dequeue_op_lat"),
    *("op_r_latency", "op_r_process_latency", "op_w_latency", "op_w_process_latency", "op_rw_latency"),
    *("subop_latency", "subop_w_latency"),
)
OSD_COUNTERS = ("op_r", "op_w", "op_rw", "subop_w")
OSD_BYTES = ("op_r_out_bytes", "op_w_in_bytes", "subop_w_in_bytes")
OSD_GAUGES = ("op_wip", "numpg")
BLUESTORE_LATENCIES = {
    "kv_flush_lat": ("kv_flush_lat",),
    "kv_commit_lat": ("kv_commit_lat",),
    "kv_sync_lat": ("kv_sync_lat",),
    "commit_lat": ("txc_commit_lat", "commit_lat"),  # renamed in 17
    "aio_wait_lat": ("state_aio_wait_lat",),
    "read_lat": ("read_lat",),
    "read_wait_aio_lat": ("read_wait_aio_lat",),
}
HISTOGRAMS = {
    "op_r_within_us": "op_r_latency_out_bytes_histogram",
    "op_w_within_us": "op_w_latency_in_bytes_histogram",
}
BINS = tuple(100 * 2**power for power in range(21))
"""Upper bounds in us; the last has all that took longer than the one before."""
_AXIS = {"min": 0, "quant_size": 100_000, "scale_type": "log2"}
_MICROSECONDS = Decimal(1_000_000)


def _pair(name: str) -> tuple[Field, Field]:
    return Field(f"{name}_count"), Field(f"{name}_us", unit="us")


FIELDS = (
    *(field for name in OSD_LATENCIES for field in _pair(name)),
    *map(Field, OSD_COUNTERS),
    *(Field(name, unit="bytes") for name in OSD_BYTES),
    *(Field(name, FieldKind.GAUGE) for name in OSD_GAUGES),
    *(field for name in BLUESTORE_LATENCIES for field in _pair(f"bluestore_{name}")),
    *(Field(f"{name}_{bound}") for name in HISTOGRAMS for bound in BINS),
)


class NotPerfDumpError(ValueError):
    """The answer is not a `perf dump` of an OSD."""


def parse(answer: bytes) -> tuple[dict[str, int], int]:
    """The counters in an answer, by the names in FIELDS, and the number of values that were not understood.

    Raises NotPerfDumpError.
    """
    document, osd = _sections(answer)
    bluestore: Any = document.get("bluestore")
    counters: dict[str, int | None] = {}
    for name in OSD_LATENCIES:
        counters.update(_average(osd, (name,), name))
    for name in (*OSD_COUNTERS, *OSD_BYTES, *OSD_GAUGES):
        if name in osd:
            counters[name] = _count(osd[name])
    for name, names in BLUESTORE_LATENCIES.items() if isinstance(bluestore, dict) else ():
        counters.update(_average(bluestore, names, f"bluestore_{name}"))
    known = {name: value for name, value in counters.items() if value is not None}
    return known, len(counters) - len(known)


def parse_latency_bins(answer: bytes) -> tuple[dict[str, int], int]:
    """The bins in an answer to `perf histogram dump`, and the number of histograms that were not understood.

    Raises NotPerfDumpError.
    """
    _, osd = _sections(answer)
    known: dict[str, int] = {}
    odd = 0
    for name, histogram in HISTOGRAMS.items():
        if histogram in osd:
            counts = _counts_by_latency(osd[histogram])
            odd += counts is None
            known |= {f"{name}_{bound}": count for bound, count in zip(BINS, counts or (), strict=False)}
    return known, odd


def _counts_by_latency(histogram: Any) -> list[int] | None:
    """Requests in each of BINS; None for another histogram. Its first row has latencies below 0."""
    axes, rows = (histogram.get(key) if isinstance(histogram, dict) else None for key in ("axes", "values"))
    latency = axes[0] if isinstance(axes, list) and axes else None
    if not isinstance(latency, dict) or any(latency.get(key) != value for key, value in _AXIS.items()):
        return None
    if not isinstance(rows, list) or len(rows) <= len(BINS) or not all(isinstance(row, list) for row in rows):
        return None
    counts = [_count(value) for row in rows for value in row]
    if None in counts:
        return None
    sums = [sum(row) for row in rows]
    return [sums[0] + sums[1], *sums[2 : len(BINS)], sum(sums[len(BINS) :])]


def _sections(answer: bytes) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The document of an answer, and its section `osd`. Raises NotPerfDumpError."""
    try:
        document = json.loads(answer, parse_float=_decimal, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as exc:
        raise NotPerfDumpError("not JSON") from exc
    osd = document.get("osd") if isinstance(document, dict) else None
    if not isinstance(osd, dict):
        raise NotPerfDumpError("without a section osd")
    return document, osd


def _average(
    section: Mapping[str, Any], names: tuple[str, ...], field: str
) -> Iterator[tuple[str, int | None]]:
    """Count and sum of the first of `names` that the section has; both None where one is not understood."""
    name = next((name for name in names if name in section), None)
    if name is None:
        return
    pair = section[name]
    count, total = (
        (_count(pair.get("avgcount")), _us(pair.get("sum"))) if isinstance(pair, dict) else (None,) * 2
    )
    known = count is not None and total is not None
    yield f"{field}_count", count if known else None
    yield f"{field}_us", total if known else None


def _decimal(text: str) -> Decimal | None:
    """A number; None for one with an exponent that none can have."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < MOST else None


def _us(value: object) -> int | None:
    """Seconds as whole microseconds."""
    if type(value) is not int and not isinstance(value, Decimal):
        return None
    try:
        total = Decimal(value) * _MICROSECONDS
        return int(total) if 0 <= total < MOST else None
    except (ArithmeticError, InvalidOperation):
        return None
