"""One line of sysstat about a disk, and the latency and load in it.

Versions and programs name their columns differently: sadf's JSON `rkB`, sar and `sadf -d` `rkB/s`, before
version 12 `rd_sec/s` (sectors of 512 bytes), iostat `rMB/s` and an await for reads and one for writes.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

METRIC = "await"
COLUMNS = (METRIC, "operations", "throughput", "request_bytes", "read_share")

_KIB = 1024.0
_SIZES = {"kB": _KIB, "kB/s": _KIB, "MB/s": _KIB * _KIB, "_sec": 512.0, "_sec/s": 512.0, "sec/s": 512.0}
_DIRECTIONS = (("r", "rd"), ("w", "wr"))
_BOTH_DIRECTIONS = {"kB/s": _KIB, "MB/s": _KIB * _KIB}
_REQUEST_SIZES = {"areq-sz": _KIB, "avgrq-sz": 512.0}
_AWAITS = (("r/s", "r_await"), ("w/s", "w_await"), ("d/s", "d_await"))
_ALWAYS = ("r/s", "w/s")
"""Discards and flushes are of later versions."""
_UNKNOWN = float("nan")

_WRAPS = (2.0**32, 2.0**64)
"""Counters of a device that went backwards, less which sysstat subtracts."""
_WRAP_SHARE = 0.01
_MOST = {
    "requests a second": 1e8,
    "bytes a second": 1e13,
    "bytes a request": 2.0**30,
    "requests waiting": 65_536.0,
    "%util": 1e5,
}

_SD_MAJORS = (8, *range(65, 72), *range(128, 136), 202)
_MINORS = dict.fromkeys(_SD_MAJORS, 16) | dict.fromkeys((3, 22, 33, 34, 56, 57), 64) | {179: 8}
"""Device numbers of a disk and its partitions, by major number (Documentation/admin-guide/devices.txt)."""


@dataclass(frozen=True, slots=True)
class DiskSample:
    """`columns` of `device` over `seconds` up to `end` (epoch seconds). `where`: the place in its file."""

    host: str
    device: str
    end: float
    seconds: float
    columns: Mapping[str, float]
    where: str = ""


class NotMeasuredError(ValueError):
    """A sample without a latency; the message gives the reason."""


def measured(sample: DiskSample, interval_seconds: float) -> tuple[float, ...]:
    """One entry for each of COLUMNS, NaN where it is unknown.

    ms, operations in `interval_seconds`, bytes a second, bytes, and 0 to 1. Raises NotMeasuredError.
    """
    columns = sample.columns
    bad = next((name for name, value in columns.items() if value < 0 or value == math.inf), None)
    if bad is not None:
        raise NotMeasuredError(f"{bad} is {columns[bad]:g}")
    requests, await_ms = _requests(columns), _await(columns)
    if math.isnan(await_ms):
        raise NotMeasuredError("no await")
    read, written = (_bytes(columns, names) for names in _DIRECTIONS)
    moved = read + written
    if math.isnan(moved):
        moved = _first(columns, _BOTH_DIRECTIONS)
    size = _first(columns, _REQUEST_SIZES)
    if math.isnan(size) and requests > 0:
        size = moved / requests
    _check(sample, requests, await_ms, moved)
    share = read / moved if moved > 0 else _UNKNOWN
    return await_ms, requests * interval_seconds, moved, size, share


def is_partition(device: str, devices: frozenset[str] | set[str]) -> bool:
    """True when the kernel's naming or numbering makes `device` a partition of another of `devices`."""
    letters = re.fullmatch(r"(.*[^0-9])[0-9]+", device)
    digits = re.fullmatch(r"(.*[0-9])p[0-9]+", device)
    if (letters and letters[1] in devices) or (digits and digits[1] in devices):
        return True
    if numbers := re.fullmatch(r"dev([0-9]{1,4})-([0-9]{1,7})", device):
        major, minor = int(numbers[1]), int(numbers[2])
        first = minor - minor % _MINORS.get(major, 1)
        return first != minor and f"dev{major}-{first}" in devices
    return False


def _requests(columns: Mapping[str, float]) -> float:
    if "tps" in columns:
        return columns["tps"]
    if not all(name in columns for name in _ALWAYS):
        return _UNKNOWN
    return sum(columns[name] for name, _ in _AWAITS if name in columns)


def _await(columns: Mapping[str, float]) -> float:
    """The mean over all requests; iostat has it by direction, of which each with requests must be known."""
    if METRIC in columns:
        return columns[METRIC]
    if not all(name in columns for name in _ALWAYS):
        return _UNKNOWN
    parts = [(columns[n], columns.get(a, _UNKNOWN)) for n, a in _AWAITS if columns.get(n)]
    requests = sum(number for number, _ in parts)
    return sum(number * ms for number, ms in parts) / requests if requests else 0.0


def _bytes(columns: Mapping[str, float], names: tuple[str, str]) -> float:
    """Bytes a second of one direction."""
    for suffix, scale in _SIZES.items():
        for name in names:
            value = columns.get(f"{name}{suffix}")
            if value is not None:
                return value * scale
    return _UNKNOWN


def _first(columns: Mapping[str, float], scales: Mapping[str, float]) -> float:
    """The first of the columns named in `scales`, in bytes."""
    return next((columns[name] * scale for name, scale in scales.items() if name in columns), _UNKNOWN)


def _check(sample: DiskSample, requests: float, await_ms: float, moved: float) -> None:
    """Raises NotMeasuredError for rates that no disk has: a counter of the device fell in the interval."""
    columns = sample.columns
    queue = columns.get("aqu-sz", columns.get("avgqu-sz", 0.0))
    values = {
        "requests a second": requests,
        "bytes a second": moved,
        "bytes a request": moved / max(requests, 0.005),
        "requests waiting": max(queue, requests * await_ms / 1000),
        "%util": columns.get("util-percent", columns.get("%util", columns.get("util", 0.0))),
    }
    for what, value in values.items():
        if value > _MOST[what]:
            raise NotMeasuredError(f"{value:.4g} {what}")
    for what, total in (
        ("requests", requests * sample.seconds),
        ("ms", requests * await_ms * sample.seconds),
    ):
        for wrap in _WRAPS:
            if abs(total - wrap) < _WRAP_SHARE * wrap:
                raise NotMeasuredError(
                    f"{total:.4g} {what} in {sample.seconds:g} s: a counter went backwards"
                )
