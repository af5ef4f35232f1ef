"""Text of `strace -ttt -T -f -y`: the system call layer of the traced processes.

12409 1795249408.775433 pread64(3</data/in.bin>, "\\0\\0"..., 4096, 8192) = 4096 <0.000012>
12416 1795249408.826627 write(1</data/out>, "\\0\\0"..., 16384 <unfinished ...>
12416 1795249408.826668 <... write resumed>) = 16384 <0.000041>
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from laggard_aggregator.layers.columns import Ints, LayerRecording
from laggard_aggregator.layers.readers import system_calls
from laggard_aggregator.layers.readers.kernel_trace import call_names
from laggard_aggregator.layers.readers.stamped_csv import named
from laggard_aggregator.layers.readers.text_lines import (
    extracted,
    integers,
    line_blocks,
    matches_lines,
    nanoseconds,
)

_HEAD = (
    r"^(?:\[pid +(?P<pid>[0-9]+)\] +|(?P<first>[0-9]+) +)?"
    r"(?P<seconds>[0-9]{1,10})\.(?P<fraction>[0-9]{1,9}) +"
)
_RESULT = (
    r"\) += (?P<result>-?[0-9]+|0x[0-9a-f]+|\?)[^\n]*?(?:<(?P<whole>[0-9]+)\.(?P<part>[0-9]{1,9})>)?\s*$"
)
_FULL = _HEAD + r"(?P<name>[a-z_0-9]+)\((?P<arguments>[^\n]*)" + _RESULT
_BEGUN = _HEAD + r"(?P<name>[a-z_0-9]+)\((?P<arguments>[^\n]*?) <unfinished \.\.\.>\s*$"
_RESUMED = _HEAD + r"<\.\.\. (?P<name>[a-z_0-9]+) resumed>(?P<arguments>[^\n]*)" + _RESULT
_FD = r"^(?P<fd>[0-9]{1,9})(?:<(?P<path>/[^>]*)>)?"
_LAST_TWO = r", (?P<size>[0-9]{1,18}), (?P<offset>[0-9]{1,18})$"
_LAST = r", (?P<size>[0-9]{1,18})$"


def matches(first: bytes) -> bool:
    """True when the first bytes of a file are of this format."""
    return matches_lines(first, _FULL) or matches_lines(first, _BEGUN)


def read(path: Path, recording: LayerRecording) -> None:
    """Adds the layer of system calls. Raises InputError."""
    parts: list[system_calls.CallEvents] = []
    untimed = 0
    for lines in line_blocks(path):
        found = [extracted(lines, pattern) for pattern in (_FULL, _BEGUN, _RESUMED)]
        untimed += sum(int(pc.sum(pc.equal(g["whole"], "")).as_py() or 0) for at, g in found[:1] if len(at))
        events = [
            *(_events(at, groups, recording, path, returns=False) for at, groups in found[:2]),
            _events(*found[0], recording, path, returns=True, lasting=True),
            _events(*found[2], recording, path, returns=True),
        ]
        order = np.argsort(np.concatenate([place for place, _ in events]), kind="stable")
        parts.append(_ordered([each for _, each in events], order))
    layer, remarks, lost = system_calls.requests(parts, recording)
    if layer is not None:
        layer.clock = "wall"
        layer.resolution_ns = 1000
        recording.layers.append(layer)
    recording.lost_events += lost
    recording.remarks += [f"{path.name}: {remark}" for remark in remarks]
    if untimed:
        recording.remarks.append(f"{path.name}: {untimed} calls have no duration: record with -T")


def _events(
    at: Ints,
    groups: dict[str, Any],
    recording: LayerRecording,
    path: Path,
    *,
    returns: bool,
    lasting: bool = False,
) -> tuple[Ints, system_calls.CallEvents]:
    """Places and events of matched lines: entries, or returns of the calls that end on the line.

    `lasting`: the lines are whole calls; they return their duration after the line's time.
    """
    count = len(at)
    time = nanoseconds(groups["seconds"], groups["fraction"]) if count else np.zeros(0, np.int64)
    if lasting and count:
        time = time + nanoseconds(
            pc.if_else(pc.equal(groups["whole"], ""), "0", groups["whole"]), groups["part"]
        )
    thread = np.maximum(integers(groups["pid"]), integers(groups["first"])) if count else time
    arguments = groups["arguments"]
    fd, space = _descriptors(arguments, recording, path, count)
    both = pc.extract_regex(arguments, _LAST_TWO)
    one = pc.extract_regex(arguments, _LAST)
    names = call_names(groups["name"])
    placed = pc.match_substring(pc.utf8_slice_codeunits(groups["name"], 0, 2), "p").to_numpy(
        zero_copy_only=False
    )
    size = np.where(placed, _number(both, "size"), _number(one, "size"))
    offset = np.where(placed, _number(both, "offset"), -1)
    result = np.full(count, 0, np.int64)
    if returns and count:
        texts = groups["result"]
        plain = pc.match_substring_regex(texts, r"^-?[0-9]{1,18}$")
        result = integers(pc.if_else(plain, texts, "-1"))
    return at, system_calls.CallEvents(
        time=time,
        process=np.full(count, -1, np.int64),
        thread=thread,
        name=names,
        is_return=np.full(count, returns),
        fd=fd,
        size=size,
        offset=offset,
        result=result,
        space=space,
    )


def _descriptors(arguments: Any, recording: LayerRecording, path: Path, count: int) -> tuple[Ints, Any]:
    found = pc.extract_regex(arguments, _FD)
    fd = integers(pc.fill_null(pc.struct_field(found, "fd"), ""))
    paths = pc.fill_null(pc.struct_field(found, "path"), "")
    return fd, named(paths, recording.names, path, count)


def _number(found: Any, name: str) -> Ints:
    return integers(pc.fill_null(pc.struct_field(found, name), ""))


def _ordered(parts: list[system_calls.CallEvents], order: Ints) -> system_calls.CallEvents:
    joined = system_calls.CallEvents(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in system_calls.CallEvents.__slots__
        )
    )
    return system_calls.CallEvents(
        *(getattr(joined, name)[order] for name in system_calls.CallEvents.__slots__)
    )
