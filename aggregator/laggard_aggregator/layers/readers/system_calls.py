"""System calls: entries and returns paired by thread, file offsets of calls that have none, the I/O among
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.layers.columns import (
    ABSENT,
    OTHER,
    READ,
    WRITE,
    Ints,
    RequestColumns,
    TracedLayer,
    rank_of,
)
from laggard_aggregator.layers.readers.text_lines import joined

_MOVING = {"read": READ, "readv": READ, "write": WRITE, "writev": WRITE}
_PLACED = {
    "pread64": READ,
    "pread": READ,
    "preadv": READ,
    "preadv2": READ,
    "pwrite64": WRITE,
    "pwrite": WRITE,
    "pwritev": WRITE,
    "pwritev2": WRITE,
}
_SYNCING = ("fsync", "fdatasync", "sync_file_range")
_NAMES = (*_MOVING, *_PLACED, "lseek", *_SYNCING, "other")
_CODES = {name: code for code, name in enumerate(_NAMES)}
_OPERATION = np.array([{**_MOVING, **_PLACED}.get(name, OTHER) for name in _NAMES], np.int8)
_IS_MOVING = np.array([name in _MOVING for name in _NAMES])
_IS_PLACED = np.array([name in _PLACED for name in _NAMES])
_IS_VECTORED = np.array(["readv" in name or "writev" in name for name in _NAMES])
_LSEEK = _CODES["lseek"]
_SECTOR_LIKE_FD = 1 << 30


@dataclass(slots=True)
class CallEvents:
    """Entries and returns as columns. Offsets, fds and `space` (index of a path): -1 unknown.

    Size and offset may be with the entry or with the return.
    """

    time: Ints
    process: Ints
    thread: Ints
    name: NDArray[np.int16]
    is_return: NDArray[np.bool_]
    fd: Ints
    size: Ints
    offset: Ints
    result: Ints
    space: NDArray[np.int32]


def in_order(place: Ints, **columns: NDArray[np.generic]) -> CallEvents:
    """Events in the order of their lines: an entry may follow a return within the same microsecond."""
    order = np.argsort(place, kind="stable")
    return CallEvents(**{name: values[order] for name, values in columns.items()})  # type: ignore[arg-type]


def code_of(name: str) -> int:
    """The code of a system call's name; all calls without data share one."""
    return _CODES.get(name, _CODES["other"])


def requests(parts: Sequence[CallEvents]) -> tuple[TracedLayer | None, list[str], int]:
    """The layer of reads and writes, remarks, and the number of entries or returns that are lost."""
    if not parts:
        return None, [], 0
    events = joined(parts)
    order = np.lexsort((events.time, events.thread))  # stable: text order within a thread and time
    thread, name, is_return = events.thread[order], events.name[order], events.is_return[order]
    follows = np.zeros(len(order), np.bool_)
    follows[1:] = is_return[1:] & ~is_return[:-1] & (thread[1:] == thread[:-1]) & (name[1:] == name[:-1])
    first_of_thread = np.ones(len(order), np.bool_)
    first_of_thread[1:] = thread[1:] != thread[:-1]
    last_of_thread = np.append(first_of_thread[1:], True)
    entries = np.flatnonzero(~is_return)
    returned = np.append(follows[1:], False)[entries]
    paired = order[np.minimum(entries + 1, len(order) - 1)]
    is_open = ~returned & last_of_thread[entries]
    lost = int((~returned & ~is_open).sum() + (is_return & ~follows & ~first_of_thread).sum())
    entry = order[entries]
    columns = RequestColumns.of(
        len(entry),
        admit=events.time[entry],
        callback=np.where(returned, events.time[paired], ABSENT),
        space=events.space[entry],
        start=np.where(
            returned, np.maximum(events.offset[entry], events.offset[paired]), events.offset[entry]
        ),
        size=np.where(returned, np.maximum(events.size[entry], events.size[paired]), events.size[entry]),
        done=np.where(returned, events.result[paired], -1),
        operation=_OPERATION[events.name[entry]],
        thread=events.thread[entry],
        process=events.process[entry],
        fd=events.fd[entry].clip(-1, _SECTOR_LIKE_FD).astype(np.int32),
    )
    layer = _io_only(columns, events.name[entry])
    remarks = []
    if lost:
        remarks.append(f"{lost} entries or returns of system calls are missing")
    return layer, remarks, lost


def _io_only(columns: RequestColumns, name: NDArray[np.int16]) -> TracedLayer:
    """Reads and writes that did not fail, in order of time, with offsets where they can be known."""
    vectored = _IS_VECTORED[name] & (columns.done >= 0)  # their count is of buffers, not of bytes
    columns.size[vectored] = columns.done[vectored]
    moving = _IS_MOVING[name] | ((name == _LSEEK) & (columns.done >= 0))
    _place(columns, moving, name == _LSEEK)
    is_io = (_IS_MOVING[name] | _IS_PLACED[name]) & ((columns.done >= 0) | (columns.callback == ABSENT))
    order = np.flatnonzero(is_io)
    order = order[np.argsort(columns.admit[order], kind="stable")]
    left_out = {"other calls": int((~is_io).sum())}
    return TracedLayer("syscall", columns.where(order), rank_of("syscall"), left_out=left_out)


def _place(columns: RequestColumns, moving: NDArray[np.bool_], is_seek: NDArray[np.bool_]) -> None:
    """Sets the offset of calls at the file position: the bytes moved since the last seek, else since 0."""
    chosen = np.flatnonzero(moving & (columns.callback != ABSENT) & (columns.done >= 0))
    if not len(chosen):
        return
    owner = np.where(columns.process >= 0, columns.process, columns.thread)[chosen]
    ordered = np.lexsort((columns.admit[chosen], columns.fd[chosen], owner))
    order, owner = chosen[ordered], owner[ordered]
    same = np.zeros(len(order), np.bool_)
    same[1:] = (columns.fd[order][1:] == columns.fd[order][:-1]) & (owner[1:] == owner[:-1])
    seeks = is_seek[order]
    moved = np.where(seeks, 0, columns.done[order])
    before = np.concatenate([[0], np.cumsum(moved)[:-1]])
    anchors = np.where(~same | seeks, np.arange(len(order)), 0)
    anchor = np.maximum.accumulate(anchors)
    base = np.where(seeks[anchor], columns.done[order][anchor], 0)
    position = base + before - before[anchor]
    columns.start[order] = np.where(seeks, -1, position)
