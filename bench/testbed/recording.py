"""The recording's format: writing it, and reading it back for the summary.

xz-compressed text. First `# key: value` lines, then for each sample a line `@ <epoch seconds, 9 decimals>`
with the clock read right before /proc/diskstats, and under it the rows of the sampled devices byte for byte
as the kernel printed them.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading: epoch time in nanoseconds and the kernel's rows, each with its newline."""

    time_ns: int
    rows: bytes


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording: its header's keys and values, and its samples in order of time."""

    header: dict[str, str]
    samples: tuple[Sample, ...]


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


def read(path: Path) -> Recording:
    """Return a recording read from `path`. Raises ValueError on text that is not one."""
    header: dict[str, str] = {}
    samples: list[tuple[int, list[bytes]]] = []
    for line in lzma.decompress(path.read_bytes()).splitlines(keepends=True):
        if line.startswith(b"# "):
            key, _, value = line[2:].decode().rstrip("\n").partition(": ")
            header[key] = value
        elif line.startswith(b"@ "):
            seconds, _, nanoseconds = line[2:].strip().partition(b".")
            samples.append((int(seconds) * 1_000_000_000 + int(nanoseconds), []))
        elif samples:
            samples[-1][1].append(line)
        else:
            raise ValueError(f"{path.name}: a row before the first time: {line[:40]!r}")
    return Recording(header, tuple(Sample(time_ns, b"".join(rows)) for time_ns, rows in samples))


def column(rows: bytes, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return each named device's counters (fields 4 on of its row), for the devices that have a row."""
    fields = (row.split() for row in rows.splitlines())
    counters = {field[2].decode(): tuple(map(int, field[3:])) for field in fields}
    return {name: counters[name] for name in names if name in counters}
