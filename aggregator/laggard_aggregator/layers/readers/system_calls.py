"""System calls: entries and returns paired by thread, file offsets of calls that have none, the I/O among
them.
"""

from collections import Counter
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
    LayerRecording,
    RequestColumns,
    ToldLayers,
    TracedLayer,
    rank_of,
)
from laggard_aggregator.layers.interval_index import last_at_or_before
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
_OPENING = ("open", "openat", "openat2", "creat")
_COPYING = ("dup", "dup2", "dup3")
"""Calls whose result is a descriptor that now stands for the file of another one."""
_UNCOUNTED = ("copy_file_range", "sendfile", "sendfile64", "splice", "io_uring_enter", "io_submit")
"""Calls that move data of files, and whose bytes are not taken from such a trace."""
_NAMES = (*_MOVING, *_PLACED, "lseek", *_SYNCING, *_OPENING, *_COPYING, *_UNCOUNTED, "close", "other")
_CODES = {name: code for code, name in enumerate(_NAMES)}
_OPERATION = np.array([{**_MOVING, **_PLACED}.get(name, OTHER) for name in _NAMES], np.int8)
_IS_MOVING = np.array([name in _MOVING for name in _NAMES])
_IS_PLACED = np.array([name in _PLACED for name in _NAMES])
_IS_VECTORED = np.array(["readv" in name or "writev" in name for name in _NAMES])
_HAS_FLAGS = np.array([name in ("preadv2", "pwritev2") for name in _NAMES])
_IS_OPENING = np.array([name in _OPENING for name in _NAMES])
_IS_COPYING = np.array([name in _COPYING for name in _NAMES])
_LSEEK, _CLOSE = _CODES["lseek"], _CODES["close"]
_APPEND = 0x400
_MOST_FD = 1 << 30


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


def layers(parts: Sequence[CallEvents], recording: LayerRecording) -> ToldLayers:
    """The layer of reads and writes, where there are any; entries or returns may be missing.

    The file positions of descriptors that were open before come from the recording's description.
    """
    if not parts:
        return ToldLayers()
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
        fd=events.fd[entry].clip(-1, _MOST_FD).astype(np.int32),
    )
    names = events.name[entry]
    remarks = _uncounted(names)
    layer = _io_only(columns, names, recording, remarks)
    if lost:
        remarks.append(f"{lost} entries or returns of system calls are missing")
    return ToldLayers([] if layer is None else [layer], remarks, lost)


def _uncounted(names: NDArray[np.int16]) -> list[str]:
    counts = np.bincount(names, minlength=len(_NAMES))
    texts = [f"{counts[_CODES[name]]} of {name}" for name in _UNCOUNTED if counts[_CODES[name]]]
    return [f"{', '.join(texts)}: the data that these calls move is not counted"] if texts else []


def _io_only(
    columns: RequestColumns, name: NDArray[np.int16], recording: LayerRecording, remarks: list[str]
) -> TracedLayer:
    """Reads and writes that did not fail, in order of time, with offsets where they can be known."""
    vectored = _IS_VECTORED[name] & (columns.done >= 0)  # their count is of buffers, not of bytes
    columns.size[vectored] = columns.done[vectored]
    opened, closed = _IS_OPENING[name] & (columns.done >= 0), name == _CLOSE
    appending = opened & (columns.size > 0) & ((columns.size & _APPEND) > 0)
    copied = _IS_COPYING[name] & (columns.done >= 0)
    sources = descriptor_keys(columns)[copied]
    new = opened | copied
    columns.fd[new] = columns.done[new].clip(-1, _MOST_FD)
    columns.done[opened] = 0  # the position after it
    openings = _openings(columns, new | closed)
    own_offset = _HAS_FLAGS[name] & (columns.start < 0)  # offset -1: at the file's position
    moving = _IS_MOVING[name] | own_offset | ((name == _LSEEK) & (columns.done >= 0)) | opened
    appends = _appends(columns, name, opened, appending)
    columns.start[appends] = -1
    columns.done[copied] = np.where(_are_fresh(columns, moving, opened, copied, sources), 0, ABSENT)
    moving |= copied
    is_seek = (name == _LSEEK) | new
    assumed = _place(columns, moving, is_seek, appends & moving, recording, has_openings=bool(opened.any()))
    if assumed:
        remarks.append(
            f"no call that opens a file is in the trace: {assumed} calls are placed as if each file had been "
            "at its beginning"
        )
    columns.start[_shared(columns, moving, opened, remarks)] = -1
    is_io = (_IS_MOVING[name] | _IS_PLACED[name]) & ((columns.done >= 0) | (columns.callback == ABSENT))
    order = np.flatnonzero(is_io)
    order = order[np.argsort(columns.admit[order], kind="stable")]
    left_out = {"other calls": int((~is_io).sum())}
    return TracedLayer(
        "syscall", columns.where(order), rank_of("syscall"), left_out=left_out, openings=openings
    )


def _appends(
    columns: RequestColumns,
    name: NDArray[np.int16],
    opened: NDArray[np.bool_],
    appending: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Mask of the writes to descriptors whose latest open was for appending: they go to the file's end."""
    appends = np.zeros(len(columns), np.bool_)
    if not appending.any():
        return appends
    keys = descriptor_keys(columns).astype(np.uint64)
    opens = np.flatnonzero(opened & (columns.callback != ABSENT))
    opens = opens[np.lexsort((columns.callback[opens], keys[opens]))]
    writes = np.flatnonzero(_OPERATION[name] == WRITE)
    latest = last_at_or_before(keys[opens], columns.callback[opens], keys[writes], columns.admit[writes])
    appends[writes] = (latest >= 0) & appending[opens[latest]]
    return appends


def _are_fresh(
    columns: RequestColumns,
    moving: NDArray[np.bool_],
    opened: NDArray[np.bool_],
    copied: NDArray[np.bool_],
    sources: Ints,
) -> NDArray[np.bool_]:
    """For each copied descriptor, whether its source (a key) was opened and has not moved since."""
    at = np.flatnonzero(moving & (columns.callback != ABSENT))
    keys = descriptor_keys(columns)[at].astype(np.uint64)
    at = at[np.lexsort((columns.callback[at], keys))]
    keys = descriptor_keys(columns)[at].astype(np.uint64)
    times = columns.admit[copied]
    latest = last_at_or_before(keys, columns.callback[at], sources.astype(np.uint64), times)
    return (latest >= 0) & opened[at[latest]] if at.size else np.zeros(len(sources), np.bool_)


def _shared(
    columns: RequestColumns, moving: NDArray[np.bool_], opened: NDArray[np.bool_], remarks: list[str]
) -> NDArray[np.bool_]:
    """Mask of the calls at positions that cannot be known, as the trace does not tell processes.

    Threads that use one descriptor number, one of them without an open of its own, may share it.
    """
    use = moving & ~opened & (columns.process < 0) & (columns.fd >= 0)
    if not use.any():
        return use
    mine = np.unique(np.stack([columns.fd[use].astype(np.int64), columns.thread[use]]), axis=1)
    owners = opened & (columns.process < 0)
    own = {*zip(columns.fd[owners].tolist(), columns.thread[owners].tolist(), strict=True)}
    several = [fd for fd, count in Counter(mine[0].tolist()).items() if count > 1]
    foreign = {fd for fd, thread in mine.T.tolist() if (fd, thread) not in own}
    is_shared = use & np.isin(columns.fd, [fd for fd in several if fd in foreign])
    if is_shared.any():
        remarks.append(
            f"the trace does not tell processes: positions of {int(is_shared.sum())} calls on descriptors "
            "that threads may share are unknown (record-tgid, or perf with pid and tid)"
        )
    return is_shared


def descriptor_keys(columns: RequestColumns) -> Ints:
    """One number for each process and descriptor."""
    owner = np.where(columns.process >= 0, columns.process, columns.thread)
    keys: Ints = (owner << 32) + columns.fd.astype(np.int64).clip(0)
    return keys


def _openings(columns: RequestColumns, chosen: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Descriptors and times at which they began to stand for another file, or for none."""
    at = np.flatnonzero(chosen & (columns.callback != ABSENT))
    return descriptor_keys(columns)[at], columns.admit[at]


def _place(
    columns: RequestColumns,
    moving: NDArray[np.bool_],
    is_seek: NDArray[np.bool_],
    is_append: NDArray[np.bool_],
    recording: LayerRecording,
    *,
    has_openings: bool,
) -> int:
    """Sets the offset of calls at the file position: the bytes moved since the last seek or open.

    After a write that appends (`is_append`) the position is unknown.

    Without either: since, or until, the position that the description has. Else since 0 in a trace without
    opens and times of descriptors, as those of other tools, and unknown in others. Returns the number of the
    calls since such a 0.
    """
    done = np.where(is_seek | (columns.done >= 0), columns.done, -1)
    done = np.where(is_append & (done >= 0), ABSENT, done)
    is_seek = is_seek | is_append
    chosen = np.flatnonzero(moving & (columns.callback != ABSENT) & (done != -1))
    if not len(chosen):
        return 0
    known = _known_positions(
        recording, descriptor_keys(columns)[chosen], columns.callback[chosen], is_seek[chosen], done[chosen]
    )
    key = np.concatenate([descriptor_keys(columns)[chosen], known[0]])
    time = np.concatenate([columns.callback[chosen], known[1]])  # the position moves as a call returns
    seeks = np.concatenate([is_seek[chosen], np.ones(len(known[0]), np.bool_)])
    value = np.concatenate([done[chosen], known[2]])
    order = np.lexsort((time, key))
    key, seeks, value = key[order], seeks[order], value[order]
    same = np.zeros(len(order), np.bool_)
    same[1:] = key[1:] == key[:-1]
    before = np.concatenate([[0], np.cumsum(np.where(seeks, 0, value))[:-1]])
    anchor = np.maximum.accumulate(np.where(~same | seeks, np.arange(len(order)), 0))
    noted = order >= len(chosen)
    described = any(look.first_ns is not None for rows in recording.descriptors.values() for look in rows)
    base = np.where(seeks[anchor], value[anchor], ABSENT if has_openings or described else 0)
    # calls before the position was noted: back from there
    following = np.minimum.accumulate(np.where(seeks, np.arange(len(order)), len(order))[::-1])[::-1]
    first = np.minimum(following, len(order) - 1)
    is_unknown = ~seeks[anchor] | (value[anchor] == ABSENT)
    back = is_unknown & noted[first] & (key[first] == key)
    base = np.where(back, value[first] - (before[first] - before[anchor]), base)
    position = np.where(base == ABSENT, -1, np.maximum(base + before - before[anchor], -1))
    mine = order < len(chosen)
    columns.start[chosen[order[mine]]] = np.where(seeks, -1, position)[mine]
    return int((is_unknown & ~back & (base == 0) & mine & ~seeks).sum())


def _known_positions(
    recording: LayerRecording, key: Ints, returned: Ints, seeks: NDArray[np.bool_], moved: Ints
) -> tuple[Ints, Ints, Ints]:
    """Descriptor keys, times and positions of the files that were open before the recording.

    The rest are the calls that move positions.
    """
    rows = []
    for (process, fd), paths in recording.descriptors.items():
        for path in paths:
            if path.position is None or path.first_ns is None or not 0 <= process < 1 << 31:
                continue
            descriptor = (process << 32) + max(0, fd)
            looks = [(path.first_ns, path.position), *path.looks]
            if len(looks) > 1:
                mine = np.flatnonzero(key == descriptor)
                mine = mine[np.argsort(returned[mine], kind="stable")]
                looks = [_agreed(looks, returned[mine], seeks[mine], moved[mine])]
            rows.append((descriptor, *looks[0]))
    keys, time, position = (np.array([row[at] for row in rows], np.int64) for at in range(3))
    return keys, time, position


def _agreed(
    looks: list[tuple[int, int]], returned: Ints, seeks: NDArray[np.bool_], moved: Ints
) -> tuple[int, int]:
    """The first look with whose position most others agree, by the bytes moved between them.

    The kernel moves a position just before the call returns: a look between the two is ahead of the calls.
    """
    looks = sorted(looks)
    sought = returned[seeks & (returned > looks[0][0])]
    before_seek = [look for look in looks if not len(sought) or look[0] < sought[0]]
    total = np.concatenate([[0], np.cumsum(np.where(seeks, 0, moved))])
    starts = [pos - int(total[np.searchsorted(returned, at, side="right")]) for at, pos in before_seek]
    agreed = Counter(starts).most_common(1)[0][0]
    return before_seek[starts.index(agreed)]
