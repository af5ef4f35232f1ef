"""File system tracepoints: direct I/O (iomap) and buffered writes (ext4), begins and ends paired by inode.

iomap_dio_rw_begin: dev 254:0 ino 0xc size 0x100000 offset 0x0 length 0x10000 done_before 0x0 flags DIRECT
iomap_dio_complete: dev 254:0 ino 0xc size 0x100000 offset 0x10000 flags DIRECT aio 0 error 0 ret 65536
ext4_da_write_begin: dev 254,0 ino 12 pos 4096 len 4096
ext4_da_write_end: dev 254,0 ino 12 pos 4096 len 4096 copied 4096
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from laggard_aggregator.layers.columns import (
    ABSENT,
    OTHER,
    WRITE,
    Ints,
    LayerRecording,
    RequestColumns,
    TracedLayer,
    rank_of,
)
from laggard_aggregator.layers.interval_index import last_at_or_before
from laggard_aggregator.layers.readers.text_lines import extracted, hexadecimals, integers, joined

_DIRECT = (
    r"^(?:iomap:)?iomap_dio_(?P<event>rw_begin|complete): dev [0-9]+[:,][0-9]+ "
    r"ino 0x(?P<inode>[0-9a-f]{1,16}) size 0x[0-9a-f]+ offset 0x(?P<offset>[0-9a-f]{1,15}) (?P<others>[^\n]*)"
)
_LENGTH = r"length 0x(?P<value>[0-9a-f]{1,15})"
_RESULT = r"ret (?P<value>-?[0-9]{1,18})"
_BUFFERED = (
    r"^(?:ext4:)?ext4_(?:da_)?write_(?P<event>begin|end): dev [0-9]+[:,][0-9]+ ino (?P<inode>[0-9]{1,18}) "
    r"pos (?P<offset>[0-9]{1,18}) len (?P<bytes>[0-9]{1,10})(?: copied (?P<copied>[0-9]{1,10}))?"
)
PREFIXES = ("iomap", "ext4")


@dataclass(slots=True)
class FileSystemEvents:
    """Begins and ends as columns. `offset`: first byte, also of ends. `operation`: OTHER for direct I/O."""

    time: Ints
    thread: Ints
    is_end: NDArray[np.bool_]
    inode: Ints
    offset: Ints
    bytes: Ints
    operation: NDArray[np.int8]


def events(rest: Any, time: Ints, thread: NDArray[np.int32]) -> list[FileSystemEvents]:
    """Events of the lines' texts after the time."""
    layers = []
    at, groups = extracted(rest, _DIRECT)
    if len(at):
        is_end = pc.equal(groups["event"], "complete").to_numpy(zero_copy_only=False)
        result = _part(groups["others"], _RESULT)
        moved = np.where(  # a failure moves nothing
            pc.equal(result, "").to_numpy(zero_copy_only=False), -1, integers(result).clip(0)
        )
        offset = hexadecimals(groups["offset"])
        layers.append(
            FileSystemEvents(
                time=time[at],
                thread=thread[at].astype(np.int64),
                is_end=is_end,
                inode=hexadecimals(groups["inode"]),
                offset=np.where(is_end, offset - moved.clip(0), offset),
                bytes=np.where(is_end, moved, hexadecimals(_part(groups["others"], _LENGTH))),
                operation=np.full(len(at), OTHER, np.int8),
            )
        )
    at, groups = extracted(rest, _BUFFERED)
    if len(at):
        layers.append(
            FileSystemEvents(
                time=time[at],
                thread=thread[at].astype(np.int64),
                is_end=pc.equal(groups["event"], "end").to_numpy(zero_copy_only=False),
                inode=integers(groups["inode"]),
                offset=integers(groups["offset"]),
                bytes=integers(pc.if_else(pc.equal(groups["copied"], ""), groups["bytes"], groups["copied"])),
                operation=np.full(len(at), WRITE, np.int8),
            )
        )
    return layers


def _part(texts: Any, pattern: str) -> Any:
    return pc.fill_null(pc.struct_field(pc.extract_regex(texts, pattern), "value"), "")


def layer(
    parts: Sequence[FileSystemEvents], calls: TracedLayer | None, recording: LayerRecording
) -> TracedLayer | None:
    """The layer `fs`. Direct I/O does not tell its operation: it is that of the thread's system call then."""
    if not parts:
        return None
    all_ = joined(list(parts))
    order = np.lexsort((all_.is_end, all_.time, all_.offset, all_.inode))
    is_end, inode, offset = all_.is_end[order], all_.inode[order], all_.offset[order]
    paired = np.zeros(len(order), np.bool_)
    paired[:-1] = ~is_end[:-1] & is_end[1:] & (inode[:-1] == inode[1:]) & (offset[:-1] == offset[1:])
    begin = np.flatnonzero(~is_end)
    entry, last = order[begin], order[np.minimum(begin + 1, len(order) - 1)]
    has_end = paired[begin]
    columns = RequestColumns.of(
        len(entry),
        admit=all_.time[entry],
        callback=np.where(has_end, all_.time[last], ABSENT),
        space=_spaces(all_.inode[entry], recording),
        start=all_.offset[entry],
        size=all_.bytes[entry].clip(0),
        done=np.where(has_end, all_.bytes[last], -1),
        operation=all_.operation[entry],
        thread=all_.thread[entry],
    )
    if calls is not None and len(calls.requests):
        _set_operation(columns, calls.requests)
    in_time = np.argsort(columns.admit, kind="stable")
    chosen = in_time[columns.operation[in_time] != OTHER]
    left_out = {"direct I/O outside a system call": len(columns) - len(chosen)}
    return TracedLayer("fs", columns.where(chosen), rank_of("fs"), left_out=left_out)


def _set_operation(columns: RequestColumns, calls: RequestColumns) -> None:
    order = np.lexsort((calls.admit, calls.thread))
    at = last_at_or_before(
        calls.thread[order].astype(np.uint64),
        calls.admit[order],
        columns.thread.astype(np.uint64),
        columns.admit,
    )
    unknown = (columns.operation == OTHER) & (at >= 0)
    columns.operation[unknown] = calls.operation[order[at[unknown]]]


def _spaces(inodes: Ints, recording: LayerRecording) -> NDArray[np.int32]:
    """Files of inodes by the recording's description; -1 for others."""
    paths = {inode: path for path, inode in recording.inodes.items()}
    known, inverse = np.unique(inodes, return_inverse=True)
    spaces = [recording.names.index(paths[i]) if i in paths else -1 for i in known.tolist()]
    return np.array(spaces, np.int32)[inverse]
