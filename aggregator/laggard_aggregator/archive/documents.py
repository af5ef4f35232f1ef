"""Documents as rows of the archive's kind `events`.

A document of source `layers` is a part of a recording (`laggard layers send`): one row for each request. One
of source `traces` is a part of a trace log: one row for each folded record. Any other is one row with its
content.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import numpy as np
import pyarrow as pa
import zstandard
from numpy.typing import NDArray

from laggard_aggregator.archive.schemas import TEXT, TIME
from laggard_aggregator.ingest.batches import Document
from laggard_common.errors import WireError
from laggard_common.wire.limits import MAX_EVENT_BYTES, MAX_PATH_CHARS
from laggard_common.wire.trace_document import TRACES, TraceDocument, decode_document

LAYERS: Final = "layers"
VERSION: Final = 1
NULL: Final = -(2**63)
"""Stands for null in a column of a recording's part."""

_KEY: Final = [
    pa.field("run", TIME, nullable=False),
    pa.field("ordinal", pa.int64(), nullable=False),
    pa.field("node", TEXT, nullable=False),
    pa.field("role", TEXT, nullable=False),
    pa.field("received", TIME, nullable=False),
]
CONTENT: Final = pa.schema([*_KEY, pa.field("content", pa.binary(), nullable=False)])

TEXTS: Final = ("layer", "device", "operation", "below", "file")
NUMBERS: Final = (
    *("depth", "request", "upper", "admit_ns", "issue_ns", "complt_ns", "callback_ns"),
    *("offset", "bytes", "moved", "process", "thread", "fd"),
)
REQUESTS: Final = pa.schema(
    [
        *_KEY,
        pa.field("recording", TEXT, nullable=False),
        *(pa.field(name, TEXT) for name in TEXTS),
        *(pa.field(name, pa.int64()) for name in NUMBERS),
    ]
)

RECORDS: Final = pa.schema(
    [
        *_KEY,
        pa.field("job", TEXT, nullable=False),
        pa.field("log", TEXT, nullable=False),
        pa.field("log_session", pa.int64(), nullable=False),
        pa.field("log_start", pa.int64(), nullable=False),
        pa.field("log_end", pa.int64(), nullable=False),
        *(pa.field(name, TEXT, nullable=False) for name in ("host", "operation", "descriptor", "path")),
        pa.field("offset", pa.int64()),
        *(pa.field(name, pa.int64(), nullable=False) for name in ("size", "count", "first_ns", "last_ns")),
    ]
)

Columns = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class RecordingPart:
    """Requests of a recording: `columns` by name, each (n,) int64, NULL where there is no value.

    The columns TEXTS are places in `strings`.
    """

    recording: str
    strings: Sequence[str]
    columns: Columns


def encode_part(part: RecordingPart) -> bytes:
    """The content of a document with a part of a recording; docs/wire-format.md is the contract."""
    columns = {name: column.astype("<i8").tobytes() for name, column in part.columns.items()}
    packed: bytes = msgpack.packb([VERSION, part.recording, list(part.strings), columns], use_bin_type=True)
    return packed


def decode_part(content: bytes) -> RecordingPart:
    """The requests in a document's content. Raises WireError."""
    try:
        version, recording, strings, columns = msgpack.unpackb(
            content, raw=False, strict_map_key=True, max_str_len=4 * MAX_PATH_CHARS, max_ext_len=0
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as exc:
        raise WireError("document", str(exc)[:200]) from exc
    names = (*TEXTS, *NUMBERS)
    if (
        version != VERSION
        or not isinstance(strings, list)
        or not all(_is_text(text) for text in (recording, *strings))
        or not isinstance(columns, dict)
        or set(columns) != set(names)
        or not all(isinstance(column, bytes) for column in columns.values())
    ):
        raise WireError("document", "is no part of a recording of this version")
    rows = len(columns["request"]) // 8
    if any(len(column) != 8 * rows for column in columns.values()):
        raise WireError("document", "columns of different lengths")
    arrays = {name: np.frombuffer(columns[name], "<i8") for name in names}
    for name in TEXTS:
        places = arrays[name][arrays[name] != NULL]
        if places.size and not 0 <= places.min() <= places.max() < len(strings):
            raise WireError("document", f"{name}: no such string")
    return RecordingPart(recording, strings, arrays)


def document_table(document: Document, run_ns: int) -> pa.Table:
    """Rows of a document. Raises WireError when it is malformed."""
    try:
        content = zstandard.ZstdDecompressor().decompress(
            document.payload, max_output_size=MAX_EVENT_BYTES, allow_extra_data=False
        )
    except zstandard.ZstdError as exc:
        raise WireError("zstd", str(exc)[:200]) from exc
    if document.source == TRACES:
        return _records_table(document, run_ns, decode_document(content))
    if document.source != LAYERS:
        return _table(CONTENT, document, run_ns, {"content": pa.array([content], pa.binary())}, 1)
    part = decode_part(content)
    rows = part.columns["request"].size
    strings = pa.array(part.strings, pa.string())
    columns: dict[str, Any] = {"recording": _same(part.recording, rows)}
    for name in TEXTS:
        column = part.columns[name]
        places = pa.array(np.where(column == NULL, 0, column).astype(np.int32), mask=column == NULL)
        columns[name] = pa.DictionaryArray.from_arrays(places, strings)
    for name in NUMBERS:
        columns[name] = pa.array(part.columns[name], mask=part.columns[name] == NULL)
    return _table(REQUESTS, document, run_ns, columns, rows)


def _records_table(document: Document, run_ns: int, trace: TraceDocument) -> pa.Table:
    records, rows = trace.records, len(trace.records)
    texts = {
        "host": [record.node for record in records],
        "operation": [record.operation for record in records],
        "descriptor": [record.descriptor for record in records],
        "path": [record.path for record in records],
    }
    numbers = {
        "offset": [record.offset for record in records],
        "size": [record.size for record in records],
        "count": [record.count for record in records],
        "first_ns": [record.first_ns for record in records],
        "last_ns": [record.last_ns for record in records],
    }
    columns = {
        "job": _same(trace.job, rows),
        "log": _same(trace.log, rows),
        "log_session": pa.array(np.full(rows, trace.session)),
        "log_start": pa.array(np.full(rows, trace.start)),
        "log_end": pa.array(np.full(rows, trace.end)),
        **{name: pa.array(values, pa.string()).dictionary_encode() for name, values in texts.items()},
        **{name: pa.array(values, pa.int64()) for name, values in numbers.items()},
    }
    return _table(RECORDS, document, run_ns, columns, rows)


def _table(
    schema: pa.Schema, document: Document, run_ns: int, columns: Mapping[str, Any], rows: int
) -> pa.Table:
    times = {"run": run_ns, "received": document.received_ns}
    all_columns = {
        **{name: pa.array(np.full(rows, value)).cast(TIME) for name, value in times.items()},
        "ordinal": pa.array(np.full(rows, document.lsn)),
        "node": _same(document.node, rows),
        "role": _same(document.role, rows),
        **columns,
    }
    return pa.table([all_columns[name] for name in schema.names], schema=schema)


def _same(text: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_PATH_CHARS and value.isprintable()
