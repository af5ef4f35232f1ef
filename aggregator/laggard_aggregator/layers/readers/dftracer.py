"""DFTracer's `.pfw` and `.pfw.gz`: one JSON object a line, a layer for each category.

    {"id":235,"name":"pread","cat":"POSIX","pid":1,"tid":1,"ts":1744611915154438,"dur":9,"ph":"X","args":{...}}

Times are microseconds of the wall clock. `count` and `ret` are bytes; of fread and fwrite items of `size`
bytes, and `count` of vectored calls buffers. A negative `ret` is a failure. Layers are ordered by their mean
duration, as callers last longer.
"""

import math
from collections import defaultdict
from functools import partial
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
from laggard_aggregator.layers.readers.plausible import LIMIT
from laggard_aggregator.layers.readers.text_lines import integers, line_blocks, matches_lines
from laggard_common.errors import InputError

_EVENT = r'^\[?,?\{[^\n]*"ph" ?: ?"X"[^\n]*\}'
_TEXT = r'"{}" ?: ?"(?P<value>[^"\n]*)"'
_NUMBER = r'"{}" ?: ?"?(?P<value>-?[0-9]{{1,18}})\b'
_RESULT = r'"ret" ?: ?"?(?P<value>-?[0-9]{1,20})\b'
_HASH = r'"{}" ?: ?"?(?P<value>[0-9a-zA-Z]{{1,40}})\b'
_VECTORED = frozenset(
    {"readv", "preadv", "preadv2", "preadv64", "writev", "pwritev", "pwritev2", "pwritev64"}
)
_OF_ITEMS = frozenset({"fread", "fread_unlocked", "fwrite", "fwrite_unlocked"})
_OPERATIONS = {
    name: WRITE if "write" in name else READ
    for name in ("read", "pread", "pread64", "write", "pwrite", "pwrite64", *_VECTORED, *_OF_ITEMS)
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
    left = failed = unknown_items = 0
    for lines in line_blocks(path, partial(recording.remark, path)):
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
        columns, has_failed, lacks_size = _columns(events, begin, end, recording)
        failed += has_failed
        unknown_items += lacks_size
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
    if failed:
        recording.remarks.append(f"{path.name}: {failed} reads and writes failed, and moved nothing")
    if unknown_items:
        recording.remarks.append(
            f"{path.name}: {unknown_items} calls of fread and fwrite do not tell the size of their items: "
            "their bytes are unknown and not counted"
        )
    _remember_span(recording, first_ns, last_ns)
    for name, requests in parts.items():
        _join(
            recording,
            TracedLayer(
                name, RequestColumns.joined(requests), 0, clock="dftracer", resolution_ns=1000, durations=True
            ),
        )


def _join(recording: LayerRecording, layer: TracedLayer) -> None:
    """Adds the layer, or its requests to the one of the same name: each process has a file of its own."""
    same = next((own for own in recording.layers if (own.name, own.clock) == (layer.name, layer.clock)), None)
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


def _columns(
    events: Any, begin: Ints, end: Ints, recording: LayerRecording
) -> tuple[RequestColumns, int, int]:
    """The events, the number of failed reads and writes, and of those whose bytes are unknown.

    Both kinds are calls without data.
    """
    names = _text(events, "name").dictionary_encode()
    texts = names.dictionary.to_pylist()
    which = np.asarray(names.indices.to_numpy(zero_copy_only=False))
    operation = np.array([_OPERATIONS.get(name, OTHER) for name in texts], np.int8)[which]
    is_vectored = np.array([name in _VECTORED for name in texts], np.bool_)[which]
    of_items = np.array([name in _OF_ITEMS for name in texts], np.bool_)[which]
    count, (moved, returned) = _number(events, "count"), _results(events)
    failed = (operation != OTHER) & returned & (moved < 0)
    item = _number(events, "size")
    lacks_size = of_items & ~failed & (item < 0)
    item = np.where(of_items, item, 1)
    count = np.where(is_vectored, -1, _product(count, item))
    moved = np.where(returned, _product(moved, item), -1)
    operation[failed | lacks_size] = OTHER
    is_data = operation != OTHER
    size = np.where(is_data, np.where(count >= 0, count, moved.clip(0)), 0)
    columns = RequestColumns.of(
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
    return columns, int(failed.sum()), int(lacks_size.sum())


def _product(counts: Ints, item: Ints) -> Ints:
    """Bytes of `counts` items; -1 where one is unknown, and LIMIT + 1 where they are impossibly many."""
    known = (counts >= 0) & (item >= 0)
    too_many = known & (item > 0) & (counts > LIMIT // item.clip(1))
    return np.where(too_many, LIMIT + 1, np.where(known, counts * np.where(too_many, 0, item), -1))


def _results(events: Any) -> tuple[Ints, NDArray[np.bool_]]:
    """Results, of 64 bits with or without sign, and a mask of the calls that have one."""
    texts = _extracted(events, _RESULT)
    return integers(texts), pc.not_equal(texts, "").to_numpy(zero_copy_only=False)


def _files(events: Any, recording: LayerRecording) -> NDArray[np.int32]:
    hashes = _extracted(events, _HASH.format("fhash")).dictionary_encode()
    texts = hashes.dictionary.to_pylist()
    codes = np.array([recording.names.index(f"file {text}") if text else -1 for text in texts], np.int32)
    files: NDArray[np.int32] = codes[np.asarray(hashes.indices.to_numpy(zero_copy_only=False))]
    return files


def _text(events: Any, key: str) -> Any:
    return _extracted(events, _TEXT.format(key))


def _number(events: Any, key: str) -> Ints:
    return integers(_extracted(events, _NUMBER.format(key)))


def _extracted(events: Any, pattern: str) -> Any:
    return pc.fill_null(pc.struct_field(pc.extract_regex(events, pattern), "value"), "")
