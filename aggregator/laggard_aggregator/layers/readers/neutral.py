"""Laggard's own format, CSV or Parquet, one row an event of Lu & Shen's model:

layer,event,request,time_us,file,offset,bytes,operation

`event` is ADMIT, ISSUE, COMPLT or CALLBACK; `request` identifies a request within its layer. Several ISSUE
rows
of a request are its parts. Rows may come in any order. Optional column: `thread`.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from laggard_aggregator.files.compressed import open_input
from laggard_aggregator.files.cut_rows import CutRow
from laggard_aggregator.layers.columns import (
    ABSENT,
    UNKNOWN_RANK,
    Ints,
    LayerRecording,
    RequestColumns,
    TracedLayer,
    rank_of,
)
from laggard_aggregator.layers.readers.stamped_csv import (
    as_dictionary,
    check_once,
    header,
    indexes,
    named,
    operations,
)
from laggard_aggregator.layers.readers.text_lines import head
from laggard_common.errors import InputError

COLUMNS = ("layer", "event", "request", "time_us", "file", "offset", "bytes", "operation")
_KNOWN = (*COLUMNS, "thread")
_NEEDED = ("layer", "event", "request", "time_us")
EVENT_CODES = {"ADMIT": 0, "ISSUE": 1, "COMPLT": 2, "CALLBACK": 3}
_ADMIT, _ISSUE, _COMPLT, _CALLBACK = range(4)
_MOST_US = 2_000_000_000_000_000
MAX_LAYERS = 64
_BATCH_ROWS = 1 << 18


def matches(first: bytes) -> bool:
    """True for a CSV with these columns, or any Parquet file."""
    return first.startswith(b"PAR1") or set(_NEEDED) <= set(header(first))


class EventBatches:
    """Events of one layer as compact columns, collected batch by batch."""

    def __init__(self) -> None:
        self.parts: dict[str, list[NDArray[Any]]] = defaultdict(list)
        self.requests: list[Any] = []

    def add(self, name: str, values: NDArray[Any]) -> None:
        """Appends the values of one column."""
        self.parts[name].append(values)

    def pop_requests(self) -> Ints:
        """The requests' identifiers as integers; texts are numbered."""
        whole = pa.chunked_array(self.requests)
        self.requests = []
        if not pa.types.is_integer(whole.type):
            encoded = pc.cast(whole, pa.string()).dictionary_encode().unify_dictionaries()
            whole = pa.chunked_array([chunk.indices for chunk in encoded.chunks])
        return np.asarray(pc.fill_null(whole, -1).to_numpy()).astype(np.int64, copy=False)

    def pop(self, name: str) -> NDArray[Any]:
        """The whole column; its parts are freed."""
        return np.concatenate(self.parts.pop(name))


def read(path: Path, recording: LayerRecording) -> None:
    """Adds the layers of the file, in the stack's order; unknown layers in the order of their first event.

    Raises InputError.
    """
    collected: dict[str, EventBatches] = {}
    unknown = 0
    try:
        for batch in _tables(path, recording):
            unknown += _collect(batch, collected, recording, path)
    except pa.ArrowException as exc:
        raise InputError(str(path), f"is no trace of events: {str(exc).splitlines()[0]}") from None
    if unknown:
        recording.remarks.append(f"{path.name}: {unknown} rows without a known event or time are left out")
    ranks = _ranks(list(collected))
    for name in list(collected):
        layer = paired(name, collected.pop(name), recording, path)
        layer.rank = ranks[name]
        recording.layers.append(layer)


def _ranks(names: list[str]) -> dict[str, int]:
    """Places of the layers: known ones as everywhere, an unknown one behind the layer named before it."""
    ranks: dict[str, int] = {}
    before = 0
    for name in names:
        rank = rank_of(name)
        before = ranks[name] = before if rank == UNKNOWN_RANK and before else rank
    return ranks


def _tables(path: Path, recording: LayerRecording) -> Iterator[Any]:
    first = head(path, 1 << 20)
    if first.startswith(b"PAR1"):
        with pq.ParquetFile(path) as parquet:
            names = [name for name in parquet.schema_arrow.names if name in _KNOWN]
            _check(path, names)
            yield from parquet.iter_batches(_BATCH_ROWS, columns=names)
        return
    with open_input(path, cut=partial(recording.remark, path)) as file:
        text = pa.dictionary(pa.int32(), pa.string())
        kinds: dict[str, Any] = dict.fromkeys(("layer", "event", "file", "operation"), text)
        kinds |= {"request": pa.string(), "time_us": pa.float64()}
        kinds |= {name: pa.int64() for name in ("offset", "bytes", "thread")}
        names = header(first)
        _check(path, names)
        if _all_integers(first, names.index("request")):
            kinds["request"] = pa.int64()
        if _all_integers(first, names.index("time_us")):
            kinds["time_us"] = pa.int64()
        cut = CutRow(path, file)
        yield from _csv_batches(cut, path, kinds, names)
    recording.remarks += cut.remarks()


def _csv_batches(cut: CutRow, path: Path, kinds: dict[str, Any], names: list[str]) -> Iterator[Any]:
    options = pacsv.ConvertOptions(
        column_types=kinds, include_columns=[name for name in names if name in kinds], auto_dict_encode=False
    )
    reading = pacsv.ReadOptions(block_size=1 << 22, use_threads=False)
    file = pa.PythonFile(cut.file, "r")
    try:
        with pacsv.open_csv(file, read_options=reading, convert_options=options) as reader:
            yield from reader
    except pa.ArrowInvalid as exc:
        raise InputError(str(path), f"is no trace of events: {str(exc).splitlines()[0]}") from None


def _check(path: Path, names: list[str]) -> None:
    check_once(path, [name for name in names if name in _KNOWN])
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise InputError(str(path), f"lacks the columns {', '.join(missing)}")


def _all_integers(first: bytes, at: int) -> bool:
    """True when the first rows have whole numbers in a column."""
    rows = first.decode(errors="replace").splitlines()[1:2000]
    cells = [row.split(",")[at].strip() for row in rows[:-1] or rows if row.count(",") >= at]
    return bool(cells) and all(cell.lstrip("-").isdigit() and len(cell) < 19 for cell in cells)


def _collect(batch: Any, collected: dict[str, EventBatches], recording: LayerRecording, path: Path) -> int:
    """Adds the rows of a batch to their layers; returns the number of rows left out."""
    names = batch.schema.names
    layers = as_dictionary(batch.column("layer"))
    event = _events(batch.column("event"))
    time = _times(batch.column("time_us"))
    good = (event >= 0) & (time != ABSENT)
    count = batch.num_rows
    columns: dict[str, NDArray[Any]] = {
        "event": event.astype(np.int8),
        "time": time,
        "offset": _whole(batch, "offset", names, -1),
        "bytes": _bytes(batch, names, event),
        "space": named(batch.column("file"), recording.names, path, count)
        if "file" in names
        else np.full(count, -1, np.int32),
        "operation": operations(batch.column("operation"))
        if "operation" in names
        else np.full(count, 2, np.int8),
    }
    if "thread" in names:
        columns["thread"] = _whole(batch, "thread", names, -1)
    request = batch.column("request")
    which = indexes(layers)
    for code, name in enumerate(layers.dictionary.to_pylist()):
        chosen = np.flatnonzero(good & (which == code))
        if not len(chosen) or not name:
            continue
        if name not in collected and len(collected) >= MAX_LAYERS:
            raise InputError(str(path), f"has more than {MAX_LAYERS} layers")
        into = collected.setdefault(name, EventBatches())
        for column, values in columns.items():
            into.add(column, values[chosen])
        into.requests.append(request.take(pa.array(chosen)))
    return int((~good).sum())


def _events(values: Any) -> NDArray[np.int64]:
    encoded = as_dictionary(values)
    codes = [EVENT_CODES.get(str(text or "").strip().upper(), -1) for text in encoded.dictionary.to_pylist()]
    return np.array([*codes, -1], np.int64)[indexes(encoded)]


def _times(values: Any) -> Ints:
    """Microseconds, whole or with a fraction, as ns; `ABSENT` where there is none."""
    null = values.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_integer(values.type):
        whole = np.asarray(values.fill_null(0).to_numpy(zero_copy_only=False)).astype(np.int64)
        null = null | (whole > _MOST_US) | (whole < -_MOST_US)
        times = np.where(null, 0, whole) * 1000
    else:
        raw = np.asarray(pc.cast(values, pa.float64()).fill_null(0).to_numpy(zero_copy_only=False))
        null = null | ~np.isfinite(raw) | (np.abs(raw) > _MOST_US)
        times = np.rint(np.where(null, 0, raw) * 1000).astype(np.int64)
    times = times.copy()
    times[null] = ABSENT
    return times


def _whole(batch: Any, name: str, names: list[str], unknown: int) -> Ints:
    if name not in names:
        return np.full(batch.num_rows, unknown, np.int64)
    values = pc.cast(batch.column(name), pa.int64(), safe=False).fill_null(unknown)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _bytes(batch: Any, names: list[str], event: NDArray[np.int64]) -> Ints:
    """Bytes, -1 unknown. A negative result, at COMPLT or CALLBACK, is a failure, which moves none."""
    values = _whole(batch, "bytes", names, -1)
    if "bytes" in names:
        given = batch.column("bytes").is_valid().to_numpy(zero_copy_only=False)
        values = np.where(given & (values < 0) & ((event == _COMPLT) | (event == _CALLBACK)), 0, values)
    return values


def paired(name: str, events: EventBatches, recording: LayerRecording, path: Path) -> TracedLayer:
    """Pairs the four events of each request. Of several ISSUE the first counts, of COMPLT the last."""
    request = events.pop_requests()
    order = np.argsort(request, kind="stable")
    sorted_ = request[order]
    fresh = np.ones(len(sorted_), np.bool_)
    fresh[1:] = sorted_[1:] != sorted_[:-1]
    row = np.empty(len(order), np.int64)
    row[order] = np.cumsum(fresh) - 1
    count = int(fresh.sum())
    del request, order, sorted_, fresh
    event = events.pop("event")
    time = events.pop("time")
    stamps = [np.full(count, ABSENT, np.int64) for _ in EVENT_CODES]
    numbers = [np.zeros(count, np.int32) for _ in range(2)]
    firsts: list[Ints] = []
    for code, into in enumerate(stamps):
        at = np.flatnonzero(event == code)
        at = at[np.argsort(time[at], kind="stable")]
        if code in (_COMPLT, _CALLBACK):
            into[row[at]] = time[at]
        else:
            into[row[at[::-1]]] = time[at[::-1]]
            numbers[code] += np.bincount(row[at], minlength=count).astype(np.int32)
        firsts.append(at[::-1])
    repeated = int((numbers[_ADMIT] > 1).sum())
    if repeated:
        recording.remarks.append(
            f"{path.name}: {repeated} requests of layer {name} were admitted more than once"
        )
    known: dict[str, NDArray[Any]] = {}
    for column, unknown in (("space", -1), ("offset", -1), ("bytes", -1), ("operation", 2), ("thread", -1)):
        if column not in events.parts:
            continue
        values = events.pop(column)
        into = np.full(count, unknown, values.dtype)
        for at in reversed(firsts):  # ADMIT has the last word, then ISSUE
            chosen = at[values[at] != unknown]
            into[row[chosen]] = values[chosen]
        known[column] = into
        if column == "bytes":
            known["done"] = _done(values, row, firsts, count)
    columns = RequestColumns.of(
        count,
        admit=stamps[_ADMIT],
        issue=stamps[_ISSUE],
        complt=stamps[_COMPLT],
        callback=stamps[_CALLBACK],
        space=known["space"],
        start=known["offset"],
        size=known["bytes"].clip(0),
        done=known["done"],
        operation=known["operation"],
        issues=numbers[_ISSUE],
        **({"thread": known["thread"]} if "thread" in known else {}),
    )
    stamped = bool((columns.issue != ABSENT).any())
    return TracedLayer(name, columns, rank_of(name), clock=f"{path} {name}", stamped=stamped)


def _done(values: Ints, row: Ints, firsts: list[Ints], count: int) -> Ints:
    """Bytes of the request's last event: those of CALLBACK, where it has them, else of COMPLT."""
    done = np.full(count, -1, np.int64)
    at = firsts[_COMPLT]
    parts = np.bincount(row[at], minlength=count)
    single = at[(values[at] >= 0) & (parts[row[at]] == 1)]
    done[row[single]] = values[single]
    at = firsts[_CALLBACK]
    at = at[values[at] >= 0]
    done[row[at]] = values[at]
    return done
