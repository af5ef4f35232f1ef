"""Text of `strace -f -ttt -T -y`: the system call layer of the traced processes.

The parser is the one that the agent folds with; it knows the positions of open files.
"""

import re
from array import array
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np

from laggard_aggregator.files.compressed import open_input
from laggard_aggregator.layers.columns import LayerRecording, TracedLayer, rank_of
from laggard_aggregator.layers.readers.record_columns import RecordColumns
from laggard_aggregator.layers.readers.text_lines import head
from laggard_common.errors import InputError
from laggard_common.trace_formats.line_reader import TraceReader
from laggard_common.trace_formats.strace import OPTIONS, StraceParser, is_strace, time_fault

_PID = re.compile(rb"^(?:\[pid +([0-9]{1,10})|([0-9]{1,10})(?=[ <]))", re.MULTILINE)
_SHOWS_FILES = re.compile(rb"\((?:[0-9]{1,9}|AT_FDCWD)<")
_BLOCK_BYTES = 1 << 22
_MOST_PIDS = 1 << 20


def matches(first: bytes) -> bool:
    """True when the first bytes of a file are of this format."""
    return is_strace(first)


def read(path: Path, recording: LayerRecording) -> None:
    """Adds the layer of system calls. Raises InputError, also for times that cannot be read."""
    first = head(path)
    if fault := time_fault(first):
        raise InputError(str(path), fault)
    pids = _pids(path)
    own = "" if pids else path.name.rpartition(".")[2]
    parser = StraceParser("", pid=int(own) if re.fullmatch("[0-9]{1,9}", own) else 0, traced=pids)
    reader = TraceReader(parser.parse)
    columns = RecordColumns(recording.names)
    shows_files = bool(_SHOWS_FILES.search(first))
    left: Counter[str] = Counter()
    opened, opened_ns = array("q"), array("q")
    with open_input(path, cut=partial(recording.remark, path)) as stream:
        for record in reader.read(stream):
            process, _, fd = record.descriptor.partition(":")
            if record.operation in ("open", "close"):
                opened.append((int(process) << 32) + min(int(fd), 2**31))
                opened_ns.append(record.time_ns)
            elif record.operation in ("read", "write"):
                # a descriptor that -y shows without a path is a pipe or a socket
                file = record.path or ("" if shows_files else f"descriptor {record.descriptor}")
                left["calls without a duration"] += record.end_ns is None
                columns.add(record, process=int(process), fd=int(fd), file=file)
    for record in parser.in_flight():
        process, _, fd = record.descriptor.partition(":")
        if record.path or not shows_files:
            file = record.path or f"descriptor {record.descriptor}"
            columns.add(record, process=int(process), fd=int(fd), file=file, done=-1)
    if reader.not_understood and not parser.calls:
        raise InputError(str(path), f"no line of strace is understood: record with {OPTIONS}")
    requests = columns.requests()
    untimed = (requests.done >= 0) & (requests.callback == np.iinfo(np.int64).min)
    requests.callback[untimed] = requests.admit[untimed]
    recording.layers.append(
        TracedLayer(
            "syscall",
            requests,
            rank_of("syscall"),
            clock="wall",
            resolution_ns=1000,
            left_out={"other calls": max(parser.calls - len(requests), 0)},
            openings=(np.array(opened, np.int64), np.array(opened_ns, np.int64)),
        )
    )
    recording.lost_events += parser.lost
    recording.remarks += [f"{path.name}: {text}" for text in _remarks(parser, reader, left)]


def _remarks(parser: StraceParser, reader: TraceReader, left: Counter[str]) -> list[str]:
    """Sentences about lines and calls that are missing, or that tell less than they could."""
    remarks = []
    if reader.not_understood:
        remarks.append(f"{reader.not_understood} of {reader.lines} lines were not understood")
    if reader.torn:
        remarks.append("the last line has no end and was left out")
    if untimed := left["calls without a duration"]:
        remarks.append(f"{untimed} calls have no duration: record with -T")
    return [*remarks, *parser.remarks()]


def _pids(path: Path) -> frozenset[int]:
    """The processes and threads that begin a line; none where lines name no process."""
    pids: set[int] = set()
    rest = b""
    with open_input(path, cut=lambda _: None) as stream:
        while block := stream.read(_BLOCK_BYTES):
            block = rest + block
            cut = block.rfind(b"\n") + 1
            rest = block[cut:][:64]
            pids.update(int(a or b) for a, b in set(_PID.findall(block, 0, cut)))
            if len(pids) > _MOST_PIDS:
                raise InputError(str(path), f"has more than {_MOST_PIDS} processes")
    return frozenset(pids)
