"""DFTracer's `.pfw` and `.pfw.gz`: one JSON object a line, a layer for each category.

    {"id":235,"name":"pread","cat":"POSIX","pid":1,"tid":1,"ts":1744611915154438,"dur":9,"ph":"X","args":{...}}

Times are microseconds of the wall clock. Layers are ordered by their mean duration, as callers last longer.
"""

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from laggard_aggregator.layers.columns import (
    OTHER,
    READ,
    WRITE,
    Ints,
    LayerRecording,
    RequestColumns,
    TracedLayer,
)
from laggard_aggregator.layers.readers.text_lines import integers, line_blocks, matches_lines
from laggard_common.errors import InputError

_EVENT = r'^\[?,?\{[^\n]*"ph" ?: ?"X"[^\n]*\}'
_TEXT = r'"{}" ?: ?"(?P<value>[^"\n]*)"'
_NUMBER = r'"{}" ?: ?"?(?P<value>-?[0-9]{{1,18}})\b'
_HASH = r'"{}" ?: ?"?(?P<value>[0-9a-zA-Z]{{1,40}})\b'
_OPERATIONS = {
    **dict.fromkeys(("read", "pread", "pread64", "readv", "preadv", "fread"), READ),
    **dict.fromkeys(("write", "pwrite", "pwrite64", "writev", "pwritev", "fwrite"), WRITE),
}
_RANK = 20_000
_MOST_US = 2_000_000_000_000_000
MAX_CATEGORIES = 64


def matches(first: bytes) -> bool:
    """True when the first bytes of a file are of this format."""
    return first.lstrip(b"[ \r\n").startswith(b"{") and matches_lines(
        first, r'"cat" ?: ?"[^"\n]*"[^\n]*"ph" ?: ?"'
    )


def read(path: Path, recording: LayerRecording) -> None:
    """Adds the events of the file to the layers of its categories. Raises InputError."""
    parts: dict[str, list[RequestColumns]] = defaultdict(list)
    first_ns, last_ns = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    left = 0
    for lines in line_blocks(path):
        events = lines.filter(pc.match_substring_regex(lines, _EVENT))
        if not len(events):
            continue
        stamp, lasting = _number(events, "ts"), _number(events, "dur").clip(0)
        possible = (stamp >= 0) & (stamp < _MOST_US) & (lasting < _MOST_US)
        if not possible.all():
            left += int((~possible).sum())
            if not possible.any():
                continue
            events = events.filter(pa.array(possible))
            stamp, lasting = stamp[possible], lasting[possible]
        begin = stamp * 1000
        end = begin + lasting * 1000
        first_ns, last_ns = min(first_ns, int(begin.min())), max(last_ns, int(end.max()))
        columns = _columns(events, begin, end, recording)
        categories = _text(events, "cat").dictionary_encode()
        codes = np.asarray(categories.indices.to_numpy(zero_copy_only=False))
        for code, name in enumerate(categories.dictionary.to_pylist()):
            if name in ("", "dftracer"):
                continue
            chosen = np.flatnonzero(codes == code)
            parts[name].append(columns.where(chosen))
        if len(parts) > MAX_CATEGORIES:
            raise InputError(str(path), f"has more than {MAX_CATEGORIES} categories")
    if left:
        recording.remarks.append(f"{path.name}: {left} events with impossible times were left out")
    _remember_span(recording, first_ns, last_ns)
    for name, found in parts.items():
        _join(
            recording,
            TracedLayer(
                name, RequestColumns.joined(found), 0, clock="dftracer", resolution_ns=1000, durations=True
            ),
        )


def _join(recording: LayerRecording, layer: TracedLayer) -> None:
    """Adds the layer, or its requests to the one of the same name: each process has a file of its own."""
    same = next(
        (each for each in recording.layers if (each.name, each.clock) == (layer.name, layer.clock)), None
    )
    if same is None:
        recording.layers.append(layer)
        same = layer
    else:
        same.requests = RequestColumns.joined([same.requests, layer.requests])
    mean_ns = float((same.requests.end - same.requests.begin_ns).mean())
    same.rank = _RANK - round(math.log10(mean_ns + 1) * 1000)


def _remember_span(recording: LayerRecording, first_ns: int, last_ns: int) -> None:
    if last_ns < first_ns:
        return
    before = recording.bounds_ns
    recording.bounds_ns = (
        (min(first_ns, before[0]), max(last_ns, before[1])) if before else (first_ns, last_ns)
    )


def _columns(events: Any, begin: Ints, end: Ints, recording: LayerRecording) -> RequestColumns:
    names = _text(events, "name").dictionary_encode()
    kinds = np.array([_OPERATIONS.get(name, OTHER) for name in names.dictionary.to_pylist()], np.int8)
    operation = kinds[np.asarray(names.indices.to_numpy(zero_copy_only=False))]
    count, moved = _number(events, "count"), _number(events, "ret")
    is_data = operation != OTHER
    size = np.where(is_data, np.where(count >= 0, count, moved.clip(0)), 0)
    return RequestColumns.of(
        len(begin),
        admit=begin,
        callback=end,
        space=_files(events, recording),
        start=np.where(is_data, _number(events, "offset"), -1),
        size=size,
        done=np.where(is_data & (moved >= 0), moved, -1),
        operation=operation,
        thread=_number(events, "tid"),
        process=_number(events, "pid"),
        fd=_number(events, "fd").clip(-1, 2**31 - 1).astype(np.int32),
    )


def _files(events: Any, recording: LayerRecording) -> NDArray[np.int32]:
    hashes = _extracted(events, _HASH.format("fhash")).dictionary_encode()
    texts = hashes.dictionary.to_pylist()
    codes = np.array([recording.names.index(f"file {text}") if text else -1 for text in texts], np.int32)
    found: NDArray[np.int32] = codes[np.asarray(hashes.indices.to_numpy(zero_copy_only=False))]
    return found


def _text(events: Any, key: str) -> Any:
    return _extracted(events, _TEXT.format(key))


def _number(events: Any, key: str) -> Ints:
    return integers(_extracted(events, _NUMBER.format(key)))


def _extracted(events: Any, pattern: str) -> Any:
    return pc.fill_null(pc.struct_field(pc.extract_regex(events, pattern), "value"), "")
