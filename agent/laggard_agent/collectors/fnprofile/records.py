"""Parses records of a ring buffer, laid out as in perf_event_open(2) for the events of `perf`.

Samples come in runs of equal size, which are counted without a Python object each.
"""

import os
import struct
import sys
from dataclasses import dataclass
from typing import NamedTuple

_LOST, _COMM, _EXIT, _THROTTLE, _FORK, _SAMPLE, _MMAP2, _LOST_SAMPLES = 2, 3, 4, 5, 7, 9, 10, 13
_COMM_EXEC = 1 << 13  # of a header's misc
SAMPLE_WORDS = 4  # header, instruction pointer, pid and tid, time
_ANY_MISC = 0xFFFF_0000_FFFF_FFFF
_SAMPLE_HEADER = _SAMPLE | SAMPLE_WORDS * 8 << 48
_RUN = 256  # samples processed together
_PIDS = struct.Struct("<II")
_MMAP2_HEAD = struct.Struct("<IIQQQIIQQII")
_ID_BYTES = 16  # pid, tid and time, at the end of every record but samples


class Mapped(NamedTuple):
    """A process mapped executable memory: `offset` of the file is at address `start`."""

    time: int
    pid: int
    start: int
    end: int
    offset: int
    inode: int
    path: str


class Renamed(NamedTuple):
    """A process got a new name; with `executed` it also runs another program."""

    time: int
    pid: int
    name: str
    executed: bool


class Forked(NamedTuple):
    """A process started as a copy of another."""

    time: int
    pid: int
    parent: int


class Ended(NamedTuple):
    """A process has ended."""

    time: int
    pid: int


Change = Mapped | Renamed | Forked | Ended


@dataclass(slots=True)
class Records:
    """Parsed contents of a part of a ring buffer.

    `runs`: samples, each SAMPLE_WORDS words of 8 bytes. `lost`: records dropped by the kernel. `garbled`:
    unparsable bytes.
    """

    runs: "list[memoryview[int]]"
    changes: list[Change]
    lost: int = 0
    throttled: int = 0
    garbled: int = 0


def parse(data: bytes) -> Records:
    """Parses the records in `data`, up to the first invalid one. Raises nothing."""
    records = Records([], [])
    whole = len(data) // 8
    words = memoryview(data)[: whole * 8].cast("Q")
    at = 0
    while at < whole:
        end = _end_of_run(words, at, whole)
        if end > at:
            records.runs.append(words[at:end])
            at = end
            continue
        size = words[at] >> 48
        if size < 8 or size % 8 or at + size // 8 > whole:
            break
        _take(records, data[at * 8 : at * 8 + size])
        at += size // 8
    records.garbled += len(data) - at * 8
    return records


def _end_of_run(words: "memoryview[int]", at: int, whole: int) -> int:
    """End of the run of samples that starts at `at`."""
    while at + SAMPLE_WORDS <= whole and words[at] & _ANY_MISC == _SAMPLE_HEADER:
        run = min(_RUN, (whole - at) // SAMPLE_WORDS) * SAMPLE_WORDS
        headers = set(words[at : at + run : SAMPLE_WORDS])
        if all(header & _ANY_MISC == _SAMPLE_HEADER for header in headers):
            at += run
            continue
        while words[at] & _ANY_MISC == _SAMPLE_HEADER:
            at += SAMPLE_WORDS
        break
    return at


def _take(records: Records, record: bytes) -> None:
    """Parses one record other than a sample."""
    kind, misc, _ = struct.unpack_from("<IHH", record)
    body = record[8:]
    try:
        if kind == _LOST:
            records.lost += struct.unpack_from("<Q", body, 8)[0]
        elif kind == _LOST_SAMPLES:
            records.lost += struct.unpack_from("<Q", body)[0]
        elif kind == _THROTTLE:
            records.throttled += 1
        elif kind == _SAMPLE:
            records.garbled += len(record)
        elif kind in (_MMAP2, _COMM, _FORK, _EXIT):
            change = _change(kind, misc, body)
            if change is not None:
                records.changes.append(change)
    except struct.error:
        records.garbled += len(record)


def _change(kind: int, misc: int, body: bytes) -> Change | None:
    """The process change in a record; None for a change of a thread."""
    at = len(body) - _ID_BYTES
    if at < 8:
        raise struct.error
    (time,) = struct.unpack_from("<Q", body, at + 8)
    pid, second = _PIDS.unpack_from(body)
    if kind == _MMAP2:
        _, _, start, size, offset, _, _, inode, _, _, _ = _MMAP2_HEAD.unpack_from(body)
        return Mapped(time, pid, start, start + size, offset, inode, _text(body[_MMAP2_HEAD.size : at]))
    if kind == _COMM:
        executed = bool(misc & _COMM_EXEC)
        return Renamed(time, pid, _text(body[8:at]), executed) if executed or pid == second else None
    (tid, _) = _PIDS.unpack_from(body, 8)
    if kind == _FORK:
        return Forked(time, pid, second) if pid != second else None
    return Ended(time, pid) if pid == tid else None


def _text(data: bytes) -> str:
    return sys.intern(os.fsdecode(data.partition(b"\0")[0]))  # the same few files in all processes
