"""Traffic of OSTs: LMT's own database, NERSC's h5lmt, TOKIO time series, TOKIO's summaries of runs (CSV).

The database's counters are cumulative and are differenced, with resets left out; the others hold bytes or
rates. Its times have no zone and need one from the user; those of the others are epoch seconds. A reading of
the database that is missing, is 0 behind traffic, or does not lie between its neighbours is left out: the
bytes from the reading before to the one after are known all the same.
"""

import csv
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from laggard_aggregator.files.sqlite import FAILURES
from laggard_aggregator.jobs.darshan.tables import LMT, LMT_TOTAL
from laggard_aggregator.jobs.darshan.text_input import Rows, file_lines, portions
from laggard_aggregator.jobs.records.local_times import LocalTimes
from laggard_aggregator.status.formatting import counted
from laggard_common.errors import InputError

_SQLITE: Final = b"SQLite format 3\0"
_HDF5: Final = b"\x89HDF\r\n\x1a\n"
_OST_NUMBER: Final = re.compile(r"OST([0-9a-fA-F]{4,8})", re.ASCII)
_MAX_GAP_US: Final = 3_600_000_000
_MAX_BYTES_A_US: Final = 1_000_000
"""A terabyte a second is more than an OST can move."""
_MAX_CELLS: Final = 50_000_000
"""OSTs times intervals of a file: a day of 1,000 OSTs at 2 s has 43 million."""
_ROWS_AT_ONCE: Final = 1 << 17
_CELLS_AT_ONCE: Final = 4_000_000
"""Cells whose intermediate columns are in memory at once: about 500 MB."""
_NEEDED: Final = (
    "darshan_jobid",
    "darshan_start_time",
    "darshan_end_time",
    "fs_tot_bytes_read",
    "fs_tot_bytes_written",
)
Integers = NDArray[np.int64]


def lmt_rows(path: Path, zone: str | None, skipped: list[str]) -> Rows:
    """Yields the table `lmt`, or `lmt_total`, of a file, in portions, as its content shows.

    Adds a line on rows that were left out to `skipped`. Raises InputError.
    """
    with InputError.from_os_errors(path), path.open("rb") as file:
        head = file.read(16)
    if head == _SQLITE:
        yield from _database(path, zone, skipped)
    elif head.startswith(_HDF5):
        yield from _hdf5(path)
    else:
        rows = (("lmt_total", row) for row in _summaries(path, skipped))
        yield from portions(rows, {"lmt_total": LMT_TOTAL})


def ost_number(name: str) -> int | None:
    """Number of an OST: of `snx11025-OST000e` 14; None for another name."""
    match = _OST_NUMBER.search(name)
    return int(match[1], 16) if match else None


def file_system_of(name: str) -> str:
    """File system of an OST: of `snx11025-OST000e` `snx11025`; empty for a name without one."""
    match = _OST_NUMBER.search(name)
    return name[: match.start()].rpartition("/")[2].rstrip("-") if match else ""


def _database(path: Path, zone: str | None, skipped: list[str]) -> Rows:
    known = LocalTimes(zone)
    left_out: Counter[str] = Counter()
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as opened:
            times, doubtful = _stamps(opened, known)
            names = {
                int(number): str(name)
                for number, name in opened.execute(
                    "select OST_ID, OST_NAME from OST_INFO where OST_ID is not null and OST_NAME is not null"
                )
            }
            for osts in _portions_of_osts(opened):
                yield from _differences(_fetched(opened, osts), times, names, left_out)
    except InputError as exc:
        raise InputError(str(path), exc.reason) from exc
    except (*FAILURES, KeyError, TypeError, ValueError, OverflowError) as exc:
        raise InputError(str(path), f"no database of LMT: {exc}") from exc
    skipped += [
        f"{path}: {counted(count, 'reading')} left out: {why}" for why, count in sorted(left_out.items())
    ]
    if doubtful:
        about = "of an hour that occurs twice fit both: taken as the first"
        skipped.append(f"{path}: {counted(doubtful, 'time')} {about}")


def _stamps(opened: sqlite3.Connection, known: LocalTimes) -> tuple[dict[int, int], int]:
    """Times by their number, which follows their order, and how many are doubtful."""
    sql = (
        "select TS_ID, TIMESTAMP from TIMESTAMP_INFO where TS_ID is not null order by cast(TS_ID as integer)"
    )
    rows = opened.execute(sql).fetchall()
    micros, doubtful = known.in_order(["" if at is None else str(at) for _, at in rows])
    return {int(number): at for (number, _), at in zip(rows, micros, strict=True) if at is not None}, doubtful


def _portions_of_osts(opened: sqlite3.Connection) -> Iterator[list[int | str]]:
    """Yields numbers of OSTs, as the database has them, that have about _CELLS_AT_ONCE readings together."""
    portion: list[int | str] = []
    waiting = total = 0
    sql = "select OST_ID, count(*) from OST_DATA where OST_ID is not null group by OST_ID"
    for ost, count in sorted(opened.execute(sql).fetchall(), key=lambda row: int(row[0])):
        portion.append(ost)
        waiting, total = waiting + count, total + count
        if count > _MAX_CELLS // 5 or total > _MAX_CELLS:
            raise ValueError(f"more than {_MAX_CELLS:,} readings, or {_MAX_CELLS // 5:,} of one OST")
        if waiting >= _CELLS_AT_ONCE or len(portion) == _MOST_OSTS_AT_ONCE:
            yield portion
            portion, waiting = [], 0
    if portion:
        yield portion


def _differences(
    readings: Integers, times: Mapping[int, int], names: Mapping[int, str], left_out: Counter[str]
) -> Rows:
    """Rows of the readings (n, 4) of some OSTs: OST, time, bytes read and written, -1 for a missing one."""
    osts, place = np.unique(readings[:, 0], return_inverse=True)
    stamp, at = np.unique(readings[:, 1], return_inverse=True)
    listed = [names.get(ost, "") for ost in osts.tolist()]
    is_named = np.array([ost in names for ost in osts.tolist()], np.bool_)[place]
    micros = np.array([times.get(number, -1) for number in stamp.tolist()], np.int64)[at]
    for why, is_bad in (
        ("of an OST without a name", ~is_named),
        ("without a time", is_named & (micros < 0)),
        ("missing or below zero", is_named & (micros >= 0) & (readings[:, 2:] < 0).any(axis=1)),
    ):
        left_out[why] += int(is_bad.sum())
    order = np.lexsort((micros, place))
    order = order[(is_named & (micros >= 0) & (readings[:, 2:] >= 0).all(axis=1))[order]]
    place, micros, amounts = place[order], micros[order], readings[order, 2:]
    is_odd = _odd_readings(place, amounts)
    left_out["0 behind traffic, or not between the ones before and after"] += int(is_odd.sum())
    left_out += Counter()  # drops what counted none
    place, micros, amounts = place[~is_odd], micros[~is_odd], amounts[~is_odd]
    length, moved = np.diff(micros), np.diff(amounts, axis=0)
    is_valid = (np.diff(place) == 0) & (length > 0) & (length <= _MAX_GAP_US) & (micros[:-1] > 0)
    is_valid &= (moved >= 0).all(axis=1)  # else the counters started over
    is_valid &= (moved <= length[:, None] * _MAX_BYTES_A_US).all(axis=1)
    kept = np.flatnonzero(is_valid)
    yield from _ost_tables(listed, place[kept], micros[kept], micros[kept + 1], moved[kept])


def _odd_readings(place: Integers, amounts: Integers) -> NDArray[np.bool_]:
    """Readings (n,) that a counter cannot have had: of OSTs `place` (n,), in order of time; `amounts` (n, 2).

    A 0 behind a larger one: a gap, as LMT writes them. One that is not between its neighbours, which are in
    order with each other: a counter that started over does not come back to where it was.
    """
    is_odd = np.zeros(place.size, np.bool_)
    if not place.size:
        return is_odd
    first = np.flatnonzero(np.diff(place, prepend=place[0] - 1))
    for column in amounts.T:
        began = np.add.reduceat(column > 0, first)  # of each OST, whose zeros count behind its own traffic
        before = np.cumsum(column > 0) - np.repeat(
            np.cumsum(began) - began, np.diff(first, append=place.size)
        )
        is_odd |= (column == 0) & (before > 0)
    left = np.flatnonzero(~is_odd)
    for column in amounts[left].T:
        same = place[left]
        last, own, following = column[:-2], column[1:-1], column[2:]
        is_between = (last <= own) & (own <= following)
        of_one = (same[:-2] == same[1:-1]) & (same[1:-1] == same[2:])
        is_odd[left[1:-1][of_one & (last <= following) & ~is_between]] = True
    return is_odd


_NUMBER: Final = "typeof({0}) in ('integer', 'real') or {0} <> '' and {0} not glob '*[^0-9]*'"
"""A number, or one as text, which a database that was filled from CSV has."""
_MOST_OSTS_AT_ONCE: Final = 900
_FETCH: Final = """
select cast(OST_ID as integer), cast(TS_ID as integer), {}, {} from OST_DATA
where OST_ID in ({{}}) and ({})
""".format(
    *(
        f"iif(({_NUMBER.format(name)}) and cast({name} as real) between 0 and 9e18,"
        f" cast({name} as integer), -1)"
        for name in ("READ_BYTES", "WRITE_BYTES")
    ),
    _NUMBER.format("TS_ID"),
)


def _fetched(opened: sqlite3.Connection, osts: Sequence[int | str]) -> Integers:
    parts = [np.zeros((0, 4), np.int64)]
    cursor = opened.execute(_FETCH.format(", ".join("?" * len(osts))), osts)
    while rows := cursor.fetchmany(_ROWS_AT_ONCE):
        parts.append(np.array(rows, np.int64).reshape(-1, 4))
    return np.concatenate(parts)


def _hdf5(path: Path) -> Rows:
    import h5py

    try:
        with h5py.File(path, "r") as file:
            series = (_h5lmt if "OSTReadGroup" in file else _tokio)(file)
            several = max(_CELLS_AT_ONCE // max(len(series.names), 1), 1)
            for low in range(0, series.times.size, several):
                yield from _intervals(series, slice(low, min(low + several, series.times.size)))
    except (OSError, KeyError, ValueError, IndexError, TypeError, MemoryError) as exc:
        raise InputError(str(path), f"neither h5lmt nor a TOKIO time series: {exc}") from exc


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _LmtSeries:
    """Traffic of OSTs: `names` (O,); begin `times` and lengths `steps` (T,) of intervals, in seconds.

    `part`: bytes read and written, and True for missing ones, (t, O) each, of a portion of the times.
    """

    names: list[str]
    times: Integers
    steps: Integers
    part: Callable[[slice], tuple[Floats, Floats, NDArray[np.bool_]]]


def _intervals(series: _LmtSeries, at_once: slice) -> Rows:
    read, written, is_missing = series.part(at_once)
    steps, times = series.steps[at_once], series.times[at_once]
    is_valid = ~is_missing & np.isfinite(read) & np.isfinite(written)
    is_valid &= ~(np.signbit(read) | np.signbit(written))  # also -0.0, by which pytokio marks a lost reading
    is_valid &= (read < 2**62) & (written < 2**62)
    is_valid &= ((steps > 0) & (steps * 1_000_000 <= _MAX_GAP_US))[:, None]
    place, at = np.nonzero(is_valid.T)
    moved = np.rint(np.stack([read[at, place], written[at, place]], axis=1)).astype(np.int64)
    begin = times[at] * 1_000_000
    yield from _ost_tables(series.names, place, begin, begin + steps[at] * 1_000_000, moved)


def _h5lmt(file: Any) -> _LmtSeries:
    """Bytes a second by OST and time, in the interval that ended at that time; the first time has none."""
    read, written = (file[f"OST{kind}Group/OSTBulk{kind}DataSet"] for kind in ("Read", "Write"))
    _check_size(read, written)
    names = [_text(name) for name in read.attrs["OSTNames"]]
    times = _times(file["FSStepsGroup/FSStepsDataSet"])
    count = min(times.size, read.shape[1], written.shape[1]) - 1
    steps = _steps(times)[:count]
    lost = file["FSMissingGroup/FSMissingDataSet"] if "FSMissingGroup" in file else None
    if lost is not None:
        _check_size(lost)

    def part(portion: slice) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        ended = slice(portion.start + 1, portion.stop + 1)
        rates = [series[: len(names), ended].T.astype(np.float64) for series in (read, written)]
        step = steps[portion, None]
        missing = np.zeros(rates[0].shape, np.bool_)
        if lost is not None:
            is_lost = lost[: len(names), ended].T != 0
            missing[: is_lost.shape[0], : is_lost.shape[1]] = is_lost
        return rates[0] * step, rates[1] * step, missing

    return _LmtSeries(names, times[:count], steps, part)


def _tokio(file: Any) -> _LmtSeries:
    """`readbytes` has bytes of each interval, whatever its `units` say; `readrates` bytes a second."""
    targets = file["datatargets"]
    is_rate = "readbytes" not in targets
    kind = "rates" if is_rate else "bytes"
    read, written = targets[f"read{kind}"], targets[f"write{kind}"]
    _check_size(read, written)
    names = [_text(name) for name in read.attrs["columns"]]
    times = _times(targets["timestamps"])
    count = min(times.size, read.shape[0], written.shape[0])
    steps = _steps(times)[:count]

    def part(portion: slice) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        both = [series[portion, : len(names)].astype(np.float64) for series in (read, written)]
        step = steps[portion, None] if is_rate else 1
        return both[0] * step, both[1] * step, np.zeros(both[0].shape, np.bool_)

    return _LmtSeries(names, times[:count], steps, part)


def _check_size(*series: Any) -> None:
    for cells in series:
        if cells.ndim != 2 or cells.size > _MAX_CELLS:
            raise ValueError(
                f"expected OSTs times intervals, at most {_MAX_CELLS:,}, got shape {cells.shape}"
            )


def _times(dataset: Any) -> Integers:
    if dataset.ndim != 1 or not 2 <= dataset.size <= _MAX_CELLS:
        raise ValueError("expected two times or more")
    seconds = dataset[:].astype(np.float64)
    if not (np.isfinite(seconds).all() and (np.abs(seconds) < 1e11).all()):
        raise ValueError("times that are none")
    times: Integers = seconds.astype(np.int64)
    return times


def _steps(times: Integers) -> Integers:
    """Length of the interval that begins at each time; the last one as long as the one before."""
    steps: Integers = np.diff(times, append=2 * times[-1:] - times[-2:-1])
    return steps[: times.size]


def _ost_tables(
    names: Sequence[str], place: Integers, start: Integers, end: Integers, moved: Integers
) -> Rows:
    """Rows of intervals: the place of their OST in `names`, start, end, bytes read and written (n, 2)."""
    listed = pa.array(names, pa.string())
    systems = pa.array([file_system_of(name) for name in names], pa.string())
    numbers = pa.array([ost_number(name) for name in names], pa.int64())
    for at in range(0, max(place.size, 1), _ROWS_AT_ONCE):
        part = slice(at, at + _ROWS_AT_ONCE)
        own = pa.array(place[part])
        columns = [systems.take(own), listed.take(own), numbers.take(own), start[part], end[part]]
        yield "lmt", pa.table([*columns, moved[part, 0], moved[part, 1]], schema=LMT)


def _summaries(path: Path, skipped: list[str]) -> Iterator[dict[str, Any]]:
    """TOKIO's summaries: their first column, an index, may have no name; the rows then have a cell more."""
    lines = csv.reader(file_lines(path, skipped))
    incomplete = 0
    try:
        header = next(lines, [])
        missing = [name for name in _NEEDED if name not in header]
        if missing:
            reason = f"no LMT data: no column {', '.join(missing)}, no database, no HDF5"
            raise InputError(str(path), reason)
        for cells in lines:
            row = dict(zip(header, cells[max(len(cells) - len(header), 0) :], strict=False))
            try:
                job, begin, end, *both = (float(row[name]) for name in _NEEDED)
                read, written = map(int, both)
                job, begin, end = map(int, (job, begin, end))
            except (ValueError, KeyError, OverflowError):
                incomplete += 1  # a run without the one or the other
                continue
            is_possible = 0 < begin <= end and min(job, *both) >= 0
            if not is_possible or max(job, end * 1_000_000, read, written) >= 2**62:
                incomplete += 1
                continue
            yield {
                "job_id": job,
                "file_system": row.get("_file_system", ""),
                "start_us": begin * 1_000_000,
                "end_us": end * 1_000_000,
                "bytes_read": read,
                "bytes_written": written,
            }
    except csv.Error as exc:
        raise InputError(str(path), f"no CSV: {exc}") from exc
    if incomplete:
        skipped.append(
            f"{path}: {incomplete} runs without times or bytes of the file system that can be right"
        )


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
