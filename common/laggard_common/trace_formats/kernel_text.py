"""Numbers that the kernel prints, and lines of /proc/diskstats (Documentation/admin-guide/iostats.rst)."""

from collections.abc import Sequence

MOST = 2**64
_MOST_DIGITS = 20

DISK_COUNTERS = (
    *("rd_ios", "rd_merges", "rd_sectors", "rd_ms", "wr_ios", "wr_merges", "wr_sectors", "wr_ms"),
    *("in_flight", "io_ms", "weighted_ms"),
    *("dc_ios", "dc_merges", "dc_sectors", "dc_ms", "fl_ios", "fl_ms"),
)
_LEADING = 3  # major, minor, name
_IN_FLIGHT = DISK_COUNTERS.index("in_flight")
_NEGATIVE = 2**31
"""From here on the requests in flight are a number below 0, as kernels before 5.0 print it."""
_DISK_COLUMNS = (20, 18, 14)
_END = {n: max((k for k in _DISK_COLUMNS if k <= n), default=0) for n in range(_DISK_COLUMNS[0])}
_NO_DISK: tuple[bytes, tuple[int | None, ...]] = (b"", ())

MANY_REQUESTS = 1000
"""Requests of a device without any time from which on its times are unknown: md before Linux 5.14."""


def disk_line(line: bytes) -> tuple[bytes, tuple[int | None, ...]]:
    """Kernel name and DISK_COUNTERS of a disk; an empty name for any other line.

    A kernel before 4.18 has 14 columns, from 4.18 on 18 (discards), from 5.5 on 20 (flushes); counters that
    it lacks are None, and so are requests in flight below 0.
    """
    columns = line.split()
    end = _END.get(len(columns), _DISK_COLUMNS[0])
    row = numbers(columns[_LEADING:end])
    if row is None:
        return _NO_DISK
    lacking = (None,) * (_DISK_COLUMNS[0] - end)
    if row[_IN_FLIGHT] < _NEGATIVE:
        return columns[2], row + lacking
    return columns[2], (*row[:_IN_FLIGHT], None, *row[_IN_FLIGHT + 1 :], *lacking)


def number(word: bytes | str) -> int | None:
    """An unsigned 64-bit number; None for anything else."""
    if not word.isdigit() or not word.isascii() or len(word) > _MOST_DIGITS:
        return None
    value = int(word)
    return value if value < MOST else None


def numbers(words: Sequence[bytes]) -> tuple[int, ...] | None:
    """Unsigned 64-bit numbers; None without any, or when a word is none."""
    if not b"".join(words).isdigit():
        return None
    try:
        values = tuple(map(int, words))
    except ValueError:  # thousands of digits
        return None
    return values if sum(values) < MOST or max(values) < MOST else None  # the sum is faster
