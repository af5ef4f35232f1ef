"""Matched requests of recordings as rows of the archive's kind `layers`, so that those of many nodes meet."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from laggard_aggregator.archive.table import TEXT, Table, received_day
from laggard_aggregator.layers.columns import ABSENT, Ints
from laggard_aggregator.layers.matching import MatchKind
from laggard_aggregator.layers.stack import Stack

SOURCE = "layers"
_OPERATIONS = ("read", "write", "other")
SCHEMA = pa.schema(
    [
        pa.field("stored", pa.timestamp("ns", tz="UTC"), nullable=False),
        *(pa.field(name, TEXT, nullable=False) for name in ("node", "recording", "layer", "device")),
        pa.field("depth", pa.int64(), nullable=False),
        *(pa.field(name, pa.int64(), nullable=False) for name in ("request",)),
        *(
            pa.field(name, pa.int64())
            for name in ("upper", "admit_ns", "issue_ns", "complt_ns", "callback_ns")
        ),
        pa.field("below", TEXT),
        pa.field("file", TEXT),
        *(pa.field(name, pa.int64()) for name in ("offset", "bytes", "moved", "process", "thread", "fd")),
        pa.field("operation", TEXT, nullable=False),
    ]
)


def store(stack: Stack, directory: Path, site: str, *, node: str, recording: str, now_ns: int) -> Path:
    """Appends the requests of all layers as one file; returns its path. Raises ArchiveError."""
    layers = Table(directory, "layers", SOURCE, site)
    with layers.locked():
        tables = request_tables(stack, node, recording, now_ns)
        return layers.append(received_day(now_ns), tables, now_ns, SCHEMA).path


def request_tables(stack: Stack, node: str, recording: str, now_ns: int) -> Iterator[pa.Table]:
    """The requests of each layer, the top one first, with the columns of SCHEMA."""
    names = [*stack.recording.names.names, ""]
    for depth, layer in enumerate(stack.layers):
        columns = layer.requests
        count = len(columns)
        boundary = stack.below(depth)
        kinds = None if boundary is None else boundary.matching.kind
        values: dict[str, Any] = {
            "stored": pa.array(np.full(count, now_ns), pa.timestamp("ns", tz="UTC")),
            "node": _same(node, count),
            "recording": _same(recording, count),
            "layer": _same(layer.name, count),
            "device": _same(layer.device, count),
            "depth": np.full(count, depth),
            "request": np.arange(count),
            "upper": _known(_upper(stack, depth, count), -1),
            "admit_ns": _known(columns.admit, ABSENT),
            "issue_ns": _known(columns.issue, ABSENT),
            "complt_ns": _known(columns.complt, ABSENT),
            "callback_ns": _known(columns.callback, ABSENT),
            "below": pa.nulls(count, TEXT)
            if kinds is None
            else _coded(kinds, [k.name.lower() for k in MatchKind]),
            "file": _coded(np.where(columns.space < 0, len(names) - 1, columns.space), names),
            "offset": _known(columns.start, -1),
            "bytes": columns.size,
            "moved": _known(columns.done, -1),
            "process": _known(columns.process, -1),
            "thread": _known(columns.thread, -1),
            "fd": _known(columns.fd.astype(np.int64), -1),
            "operation": _coded(columns.operation, list(_OPERATIONS)),
        }
        yield pa.table([pa.array(values[field.name]) for field in SCHEMA], schema=SCHEMA)


def _upper(stack: Stack, depth: int, count: int) -> Ints:
    """Of each request one of the layer above that it belongs to; -1 without any."""
    upper = np.full(count, -1, np.int64)
    boundary = stack.above(depth)
    if boundary is not None:
        upper[boundary.matching.lower[::-1]] = boundary.matching.upper[::-1]
    return upper


def _known(values: Ints, unknown: int) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values == unknown)


def _same(text: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def _coded(codes: NDArray[np.integer[Any]], texts: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(texts, pa.string()))
