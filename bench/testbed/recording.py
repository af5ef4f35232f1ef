"""The recording's format, as it is written; `laggard_aggregator.demo.recording` reads it.

xz-compressed text. First `# key: value` lines, then for each sample a line `@ <epoch seconds, 9 decimals>`
with the clock read right before /proc/diskstats, and under it the rows of the sampled devices byte for byte
as the kernel printed them.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading: epoch time in nanoseconds and the kernel's rows, each with its newline."""

    time_ns: int
    rows: bytes


def select_rows(diskstats: bytes, names: frozenset[bytes]) -> bytes:
    """Return the rows of /proc/diskstats whose third field is in `names`, unchanged and in order."""
    rows = diskstats.splitlines(keepends=True)
    return b"".join(row for row in rows if not names.isdisjoint(row.split(None, 3)[2:3]))


def write(path: Path, header: dict[str, str], samples: Iterable[Sample]) -> None:
    """Write a recording; the file appears whole or not at all."""
    parts = [f"# {key}: {value}\n".encode() for key, value in header.items()]
    for sample in samples:
        seconds, nanoseconds = divmod(sample.time_ns, 1_000_000_000)
        parts += [b"@ %d.%09d\n" % (seconds, nanoseconds), sample.rows]
    write_xz(path, b"".join(parts))


def write_xz(path: Path, data: bytes) -> None:
    """Write `data` xz-compressed as `xz -9e` does; the file appears whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
    partial.replace(path)
