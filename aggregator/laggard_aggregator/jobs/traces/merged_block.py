"""Second pass over folded trace records: those of all nodes of a job in one block (Beacon, section 3.1).

Records are in the order of their processes and times, and calls that processes have in common are repeated
text for zstd: file numbers, operations, sizes, and offsets as differences within a process. A time is the
distance to the end of the operation before it, in the unit that all times share. The multiset of the records
is restored to the bit. A block that this makes larger has the records as the nodes send them.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import zstandard
from numpy.typing import NDArray

from laggard_aggregator.jobs.join.trace_documents import RECORD_COLUMNS
from laggard_common.errors import WireError
from laggard_common.wire import limits
from laggard_common.wire.trace_codec import EventEncoder, batches
from laggard_common.wire.trace_document import decode_records
from laggard_common.wire.trace_records import MAX_POSITION, Folded

MAX_RECORDS: Final = 1 << 18
"""Records of a block."""

_VERSION: Final = 1
_AS_SENT: Final = 0
_BY_PROCESS: Final = 1
_LEVEL: Final = 19
_MAX_TEXT_BYTES: Final = 64 * limits.MAX_EVENT_BYTES
_DIGITS: Final = re.compile(r"([0-9]+)")
_TEXTS: Final = ("rest", "operation", "path")
_NUMBERS: Final = ("offset", "size", "count", "gap", "span")

IntArray = NDArray[np.int64]


def merged(table: pa.Table) -> bytes:
    """The block of 1 to MAX_RECORDS records, whose columns are RECORD_COLUMNS."""
    if not 0 < table.num_rows <= MAX_RECORDS:
        raise ValueError(f"{table.num_rows} records")
    table = table.select(RECORD_COLUMNS.names).cast(RECORD_COLUMNS)
    forms = [(_AS_SENT, _as_sent(records_of(table)))]
    by_process = _by_process(table)
    if by_process is not None:
        forms.append((_BY_PROCESS, by_process))
    form, content = min(forms, key=lambda form: len(form[1]))
    packed: bytes = msgpack.packb([_VERSION, form, content], use_bin_type=True)
    return packed


def restored(block: bytes) -> pa.Table:
    """The records of a block, in any order. Raises WireError."""
    try:
        version, form, content = _unpacked(block)
        if version != _VERSION or form not in (_AS_SENT, _BY_PROCESS) or not isinstance(content, bytes):
            raise WireError("block", "is of no known version")
        return table_of(_sent(content)) if form == _AS_SENT else _processes(content)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError) as exc:
        raise WireError("block", str(exc)[:200]) from exc
    except (msgpack.UnpackException, zstandard.ZstdError, pa.ArrowException) as exc:
        raise WireError("block", str(exc)[:200]) from exc


def table_of(records: Sequence[Folded]) -> pa.Table:
    """Records as a table."""
    names = ("node", *RECORD_COLUMNS.names[1:])
    return pa.table(
        {
            own: [getattr(record, name) for record in records]
            for own, name in zip(RECORD_COLUMNS.names, names, strict=True)
        },
        schema=RECORD_COLUMNS,
    )


def records_of(table: pa.Table) -> list[Folded]:
    """The records of a table with RECORD_COLUMNS."""
    columns = [table[name].to_pylist() for name in RECORD_COLUMNS.names]
    return [
        Folded(host, operation, descriptor, offset, size, count, first_ns, last_ns, path)
        for host, operation, descriptor, path, offset, size, count, first_ns, last_ns in zip(
            *columns, strict=True
        )
    ]


# -- as the nodes send them


def _as_sent(records: Sequence[Folded]) -> bytes:
    encoder = EventEncoder(level=_LEVEL)
    parts = [[len(part), part[0].first_ns, encoder.encode(part)] for part in batches(records)]
    packed: bytes = msgpack.packb(parts, use_bin_type=True)
    return packed


def _sent(content: bytes) -> list[Folded]:
    parts = msgpack.unpackb(content)
    if any(type(n) is not int or n < 1 for n, _, _ in parts) or sum(n for n, _, _ in parts) > MAX_RECORDS:
        raise ValueError("a wrong number of records")
    expand = zstandard.ZstdDecompressor()
    return [
        record
        for n, t0_ns, payload in parts
        for record in decode_records(_expanded(expand, payload, limits.MAX_PAYLOAD_BYTES), n, t0_ns)
    ]


# -- by process


def _by_process(table: pa.Table) -> bytes | None:
    """None where the texts are longer than a reader takes."""
    host, operation, descriptor, path = (
        table[name].combine_chunks().dictionary_encode() for name in RECORD_COLUMNS.names[:4]
    )
    parts = [text.partition(":") for text in descriptor.dictionary.to_pylist()]
    processes = _Texts([process for process, _, _ in parts])
    rests = _Texts([colon + rest for _, colon, rest in parts])
    hosts, own = host.dictionary.to_pylist(), _codes(descriptor)
    pair = _codes(host) * len(processes.texts) + processes.code[own]
    pairs, of_row = np.unique(pair, return_inverse=True)
    names = [
        (hosts[code // len(processes.texts)], processes.texts[code % len(processes.texts)]) for code in pairs
    ]
    order = sorted(range(len(names)), key=lambda at: [_natural(text) for text in names[at]])
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))

    columns = {
        "rank": rank[of_row],
        "rest": rests.code[own],
        "operation": _codes(operation),
        "path": _codes(path),
        "offset": table["offset"].combine_chunks().fill_null(-1).to_numpy(),
        **{name: table[name].to_numpy() for name in ("size", "count", "first_ns", "last_ns")},
    }
    rows = np.lexsort(
        [columns[name] for name in ("last_ns", *reversed(list(columns)[:-2]), "first_ns", "rank")]
    )
    columns = {name: values[rows] for name, values in columns.items()}
    texts = {
        "rest": rests.texts,
        "operation": operation.dictionary.to_pylist(),
        "path": path.dictionary.to_pylist(),
    }
    head: list[Any] = [[names[at] for at in order], np.bincount(columns["rank"]).tolist()]
    for name in _TEXTS:
        columns[name], shown = _by_appearance(columns[name], texts[name])
        head.append(shown)
    begins = np.flatnonzero(np.diff(columns["rank"], prepend=-1))
    last_ns, first_ns = columns["last_ns"], columns["first_ns"]
    columns["span"] = last_ns - first_ns
    columns["gap"] = first_ns - np.append(0, last_ns[:-1])
    columns["gap"][begins] = np.diff(first_ns[begins], prepend=0)
    unit = int(np.gcd.reduce(np.concatenate([columns["gap"], columns["span"]]))) or 1
    for name in ("gap", "span"):
        columns[name] //= unit
    for name in (*_TEXTS, "offset", "size"):
        columns[name] = _differences(columns[name], begins)
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=False)
    packed_head = msgpack.packb([*head, unit], use_bin_type=True)
    if len(packed_head) > _MAX_TEXT_BYTES:
        return None
    packed: bytes = msgpack.packb(
        [
            len(rows),
            compressor.compress(packed_head),
            *(_planes(columns[name], compressor) for name in (*_TEXTS, *_NUMBERS)),
        ],
        use_bin_type=True,
    )
    return packed


def _processes(content: bytes) -> pa.Table:
    n, packed_head, *packed = _unpacked(content)
    if type(n) is not int or not 0 < n <= MAX_RECORDS or len(packed) != len(_TEXTS) + len(_NUMBERS):
        raise ValueError("columns are missing")
    expand = zstandard.ZstdDecompressor()
    processes, counts, *texts, unit = msgpack.unpackb(_expanded(expand, packed_head, _MAX_TEXT_BYTES))
    sizes = np.array(counts, np.int64)
    if len(processes) != sizes.size or (sizes < 1).any() or sizes.sum() != n or type(unit) is not int:
        raise ValueError("numbers of records do not fit")
    begins = np.cumsum(sizes) - sizes
    names = (*_TEXTS, *_NUMBERS)
    values = {name: _column(column, n, expand) for name, column in zip(names, packed, strict=True)}
    for name in (*_TEXTS, "offset", "size"):
        values[name] = _sums(values[name], begins)
    span = values["span"] * unit
    gap = values["gap"] * unit
    steps = gap + np.append(0, span[:-1])
    steps[begins] = gap[begins]
    first_ns = _sums(steps, begins)
    rank = np.repeat(np.arange(sizes.size), sizes)
    shown = dict(zip(_TEXTS, map(_checked, texts), strict=True))
    hosts, own = (_checked([process[at] for process in processes]) for at in (0, 1))
    offset, size, count, last_ns = values["offset"], values["size"], values["count"], first_ns + span
    if (
        min(offset.min() + 1, size.min(), count.min() - 1, first_ns.min(), last_ns.min()) < 0
        or (size > (MAX_POSITION - np.maximum(offset, 0)) // count).any()
    ):
        raise ValueError("a number is out of range")
    columns = {
        "host": _chosen(hosts, rank),
        "operation": _chosen(shown["operation"], values["operation"]),
        "descriptor": pc.binary_join_element_wise(
            _chosen(own, rank), _chosen(shown["rest"], values["rest"]), ""
        ),
        "path": _chosen(shown["path"], values["path"]),
        "offset": pa.array(offset, mask=offset < 0),
        "size": size,
        "count": count,
        "first_ns": first_ns,
        "last_ns": last_ns,
    }
    return pa.table(columns, schema=RECORD_COLUMNS)


class _Texts:
    """Distinct texts, and the code of each that was given."""

    def __init__(self, given: Sequence[str]) -> None:
        places: dict[str, int] = {}
        self.code: IntArray = np.array([places.setdefault(text, len(places)) for text in given], np.int64)
        self.texts = list(places)


def _by_appearance(codes: IntArray, texts: Sequence[str]) -> tuple[IntArray, list[str]]:
    """Codes in the order in which they first appear, and their texts."""
    used, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(used.size, np.int64)
    place[order] = np.arange(used.size)
    return place[inverse], [texts[at] for at in used[order].tolist()]


def _differences(values: IntArray, begins: IntArray) -> IntArray:
    """Differences within a process; of its first record to that of the process before."""
    differences: IntArray = np.diff(values, prepend=0)
    differences[begins] = np.diff(values[begins], prepend=0)
    return differences


def _sums(differences: IntArray, begins: IntArray) -> IntArray:
    """The values of `_differences`."""
    totals = np.cumsum(differences)
    firsts = np.cumsum(differences[begins])
    values: IntArray = totals + np.repeat(firsts - totals[begins], np.diff(np.append(begins, totals.size)))
    return values


def _planes(values: IntArray, compressor: zstandard.ZstdCompressor) -> list[bytes]:
    """The column by significance of its bytes, the least first, without sign; each compressed by itself."""
    lanes = ((values << 1) ^ (values >> 63)).view(np.uint64)
    width = (int(lanes.max()).bit_length() + 7) // 8
    return [compressor.compress(lanes.view(np.uint8)[at::8].tobytes()) for at in range(width)]


def _column(planes: Sequence[bytes], n: int, expand: zstandard.ZstdDecompressor) -> IntArray:
    if len(planes) > 8:
        raise ValueError("a column is too wide")
    lanes = np.zeros(n, np.uint64)
    for at, plane in enumerate(planes):
        lanes.view(np.uint8)[at::8] = np.frombuffer(_expanded(expand, plane, n), np.uint8)
    halves: IntArray = (lanes >> np.uint64(1)).view(np.int64)
    return halves ^ -(lanes & np.uint64(1)).view(np.int64)


def _codes(column: pa.DictionaryArray) -> IntArray:
    codes: IntArray = column.indices.to_numpy().astype(np.int64)
    return codes


def _chosen(texts: Sequence[str], places: IntArray) -> pa.Array:
    """The texts at `places`. Raises ValueError for a place that is none."""
    return pa.DictionaryArray.from_arrays(pa.array(places), pa.array(texts, pa.string())).cast(pa.string())


def _checked(texts: Any) -> list[str]:
    if not all(
        isinstance(text, str) and len(text) <= limits.MAX_PATH_CHARS and text.isprintable() for text in texts
    ):
        raise ValueError("a text is malformed")
    return list(texts)


def _expanded(expand: zstandard.ZstdDecompressor, content: bytes, most_bytes: int) -> bytes:
    if not 0 <= zstandard.frame_content_size(content) <= most_bytes:
        raise ValueError("a part is larger than it may be")
    return expand.decompress(content, max_output_size=most_bytes, allow_extra_data=False)


def _unpacked(content: bytes) -> list[Any]:
    fields = msgpack.unpackb(content)
    if not isinstance(fields, list):
        raise ValueError("is no array")
    return fields


def _natural(text: str) -> list[tuple[int, str]]:
    """Sorts numbers within texts by their values."""
    return [(int(part), part) if at % 2 else (0, part) for at, part in enumerate(_DIGITS.split(text))]
