"""Lines as Lu & Shen print them (Fig. 6, 7); events of one request are paired in their order.

Time: 2650212.242744   EVENT: AIO_ISSUE   OP: READ   FD: 15   OFFSET: 712114176   NBYTES: 65536
"""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.layers.columns import Ints, LayerRecording
from laggard_aggregator.layers.readers.neutral import EVENT_CODES, EventBatches, paired
from laggard_aggregator.layers.readers.stamped_csv import operations
from laggard_aggregator.layers.readers.text_lines import (
    extracted,
    integers,
    line_blocks,
    matches_lines,
    nanoseconds,
)

_LINE = (
    r"^\s*Time: *\s*(?P<seconds>[0-9]{1,12})\.(?P<fraction>[0-9]{1,9})\s+EVENT:\s*"
    r"(?P<layer>[A-Za-z0-9_-]{1,64})_(?P<event>ADMIT|ISSUE|COMPLT|CALLBACK)\s+OP:\s*(?P<operation>[A-Za-z]+)\s+FD:\s*(?P<fd>[0-9]{1,9})\s+"
    r"OFFSET:\s*(?P<offset>[0-9]{1,18})\s+NBYTES:\s*(?P<bytes>[0-9]{1,18})"
)

_GROUPS = re.compile(_LINE).groupindex


def matches(first: bytes) -> bool:
    """True when the first bytes of a file are of this format."""
    return matches_lines(first, _LINE)


def read(path: Path, recording: LayerRecording) -> None:
    """Adds the layers of the file. Raises InputError."""
    blocks = [{name: pa.array([], pa.utf8()) for name in _GROUPS}]
    blocks += [extracted(lines, _LINE)[1] for lines in line_blocks(path, partial(recording.remark, path))]
    groups = {name: pa.concat_arrays([block[name] for block in blocks]) for name in blocks[0]}
    layers = pc.utf8_lower(groups["layer"]).dictionary_encode()
    which = np.asarray(layers.indices.to_numpy(zero_copy_only=False))
    events = groups["event"].dictionary_encode()
    codes = np.array([EVENT_CODES[name] for name in events.dictionary.to_pylist()], np.int8)
    columns = {
        "event": codes[np.asarray(events.indices.to_numpy(zero_copy_only=False))],
        "time": nanoseconds(groups["seconds"], groups["fraction"]),
        "offset": integers(groups["offset"]),
        "bytes": integers(groups["bytes"]),
        "operation": operations(groups["operation"]),
        "space": _files(integers(groups["fd"]), recording),
    }
    for code, name in enumerate(layers.dictionary.to_pylist()):
        chosen = np.flatnonzero(which == code)
        mine = {key: values[chosen] for key, values in columns.items()}
        batches = EventBatches()
        batches.requests.append(pa.array(_numbered(mine)))
        for key, values in mine.items():
            batches.add(key, values)
        recording.layers.append(paired(name, batches, recording, path))


def _files(fd: Ints, recording: LayerRecording) -> Ints:
    known, inverse = np.unique(fd, return_inverse=True)
    spaces: Ints = recording.names.indexes(f"descriptor {number}" for number in known.tolist()).astype(
        np.int64
    )
    return spaces[inverse].astype(np.int32)


def _numbered(columns: dict[str, Ints]) -> Ints:
    """Numbers of requests: the k-th ISSUE of a range belongs to the k-th COMPLT of the same range."""
    keys = [columns[name].astype(np.int64) for name in ("offset", "bytes", "operation", "space")]
    event = columns["event"].astype(np.int64)
    order = np.lexsort((np.arange(len(event)), event, *keys))
    fresh_key = np.ones(len(order), np.bool_)
    fresh_key[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
    fresh_event = fresh_key.copy()
    fresh_event[1:] |= event[order][1:] != event[order][:-1]
    place = np.arange(len(order))
    within = place - np.maximum.accumulate(np.where(fresh_event, place, 0))
    first = np.maximum.accumulate(np.where(fresh_key, place, 0))
    request = np.empty(len(order), np.int64)
    request[order] = first + within
    return request
