"""Text of `darshan-dxt-parser`: MPI-IO and POSIX layers of a job, times to 0.1 ms.

# DXT, file_id: 16457598720760448348, file_name: /tmp/test/testFile
# DXT, rank: 0, hostname: cn-17
 X_POSIX       0  write        0               0         1048576      0.0029      0.0032
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from laggard_aggregator.layers.columns import (
    OPERATIONS,
    Ints,
    LayerRecording,
    RequestColumns,
    TracedLayer,
    rank_of,
)
from laggard_aggregator.layers.readers.text_lines import (
    extracted,
    integers,
    line_blocks,
    matches_lines,
    nanoseconds,
)

_SEGMENT = (
    r"^ *X_(?P<module>POSIX|MPIIO) +(?P<rank>-?[0-9]+) +(?P<operation>read|write) +[0-9]+ +"
    r"(?P<offset>[0-9]+|N/A|-1) +(?P<length>[0-9]+) +(?P<begin>[0-9]+)\.(?P<begin_part>[0-9]{1,9}) +"
    r"(?P<end>[0-9]+)\.(?P<end_part>[0-9]{1,9})"
)
_FILE = r"^# DXT, file_id: (?P<id>[0-9]{1,20}), file_name: (?P<name>[^\n]*)"
_START = r"^# start_time: (?P<seconds>[0-9]{1,12})(?:\.(?P<fraction>[0-9]{1,9}))?"


def matches(first: bytes) -> bool:
    """True when the first bytes of a file are of this format."""
    return first.startswith(b"# darshan log version") or matches_lines(first, _SEGMENT)


def read(path: Path, recording: LayerRecording) -> None:
    """Adds a layer for each module, `mpiio` and `posix`. Raises InputError."""
    parts: dict[str, list[RequestColumns]] = {"MPIIO": [], "POSIX": []}
    start_ns, space = 0, -1
    for lines in line_blocks(path):
        _, started = extracted(lines, _START)
        if len(started["seconds"]):
            seconds, fraction = (
                started["seconds"],
                pc.if_else(pc.equal(started["fraction"], ""), "0", started["fraction"]),
            )
            start_ns = int(nanoseconds(seconds, fraction)[0])
        files_at, files = extracted(lines, _FILE)
        spaces = recording.names.indexes(name.strip()[:4096] for name in files["name"].to_pylist())
        at, groups = extracted(lines, _SEGMENT)
        if len(at):
            known = np.concatenate([np.array([space], np.int32), spaces])
            _add(groups, known[np.searchsorted(files_at, at)], start_ns, parts)
        if len(spaces):
            space = int(spaces[-1])
    for module, columns in parts.items():
        if columns:
            joined = RequestColumns.joined(columns)
            name = module.lower()
            order = np.argsort(joined.admit, kind="stable")
            recording.layers.append(
                TracedLayer(
                    name,
                    joined.where(order),
                    rank_of(name),
                    clock="wall",
                    resolution_ns=100_000,
                    durations=True,
                )
            )


def _add(
    groups: dict[str, Any], space: NDArray[np.int32], start_ns: int, parts: dict[str, list[RequestColumns]]
) -> None:
    module = np.array(groups["module"].to_pylist())
    operation = groups["operation"].dictionary_encode()
    codes = np.array([OPERATIONS[text] for text in operation.dictionary.to_pylist()], np.int8)
    length = integers(groups["length"])
    columns = RequestColumns.of(
        len(space),
        admit=start_ns + nanoseconds(groups["begin"], groups["begin_part"]),
        callback=start_ns + nanoseconds(groups["end"], groups["end_part"]),
        space=space,
        start=_offsets(groups["offset"]),
        size=length,
        done=length,
        operation=codes[np.asarray(operation.indices.to_numpy(zero_copy_only=False))],
        thread=integers(groups["rank"]),
        process=integers(groups["rank"]),
    )
    for name, into in parts.items():
        chosen = module == name
        if chosen.any():
            into.append(columns.where(chosen))


def _offsets(texts: Any) -> Ints:
    return integers(pc.if_else(pc.equal(texts, "N/A"), "-1", texts))
