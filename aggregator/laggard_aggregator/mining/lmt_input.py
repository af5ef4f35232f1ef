"""Traffic of OSTs: LMT's own database, NERSC's h5lmt, TOKIO time series, TOKIO's summaries of runs (CSV).

The database's counters are cumulative and are differenced, with resets left out; the others hold bytes or
rates. Its
times
have no zone and need one from the user; those of the others are epoch seconds.
"""

import csv
import io
import itertools
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from laggard_aggregator.mining.slurm_input import ZonedTimes, file_text
from laggard_aggregator.mining.tables import LMT, LMT_TOTAL
from laggard_common.errors import InputError

_SQLITE: Final = b"SQLite format 3\0"
_HDF5: Final = b"\x89HDF\r\n\x1a\n"
_OST_NUMBER: Final = re.compile(r"OST([0-9a-fA-F]{4,8})", re.ASCII)
_MAX_GAP_SECONDS: Final = 3600
_Rows = dict[str, Any]


def lmt_tables(path: Path, zone: str | None = None) -> dict[str, pa.Table]:
    """The table `lmt`, or `lmt_total`, from a file; its content tells which. Raises InputError."""
    with InputError.from_os_errors(path), path.open("rb") as file:
        head = file.read(16)
    if head == _SQLITE:
        return {"lmt": _database(path, zone)}
    if head.startswith(_HDF5):
        return {"lmt": _hdf5(path)}
    return {"lmt_total": _summaries(path)}


def ost_number(name: str) -> int | None:
    """Number of an OST: of `snx11025-OST000e` 14; None for another name."""
    found = _OST_NUMBER.search(name)
    return int(found[1], 16) if found else None


def _database(path: Path, zone: str | None) -> pa.Table:
    stamps = ZonedTimes(path, zone)
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as opened:
            times = {
                each: stamps.micros(str(at))
                for each, at in opened.execute("select TS_ID, TIMESTAMP from TIMESTAMP_INFO")
            }
            names = {
                each: str(name) for each, name in opened.execute("select OST_ID, OST_NAME from OST_INFO")
            }
            query = "select OST_ID, TS_ID, READ_BYTES, WRITE_BYTES from OST_DATA"
            readings = [(names[ost], times[at], int(r), int(w)) for ost, at, r, w in opened.execute(query)]
    except (sqlite3.Error, KeyError, TypeError, ValueError) as exc:
        raise InputError(str(path), f"no database of LMT: {exc}") from exc
    readings.sort(key=lambda each: (each[0], each[1] or 0))
    rows = []
    for (ost, begin, read, written), (other, end, read_next, written_next) in itertools.pairwise(readings):
        if (
            ost != other
            or begin is None
            or end is None
            or not 0 < end - begin <= _MAX_GAP_SECONDS * 1_000_000
        ):
            continue
        if read_next < read or written_next < written:
            continue  # the counters started over
        rows.append(_row(ost, begin, end, read_next - read, written_next - written))
    return pa.Table.from_pylist(rows, schema=LMT)


def _hdf5(path: Path) -> pa.Table:
    import h5py

    try:
        with h5py.File(path, "r") as file:
            read = _h5lmt if "OSTReadGroup" in file else _tokio
            return pa.Table.from_pylist(list(read(file)), schema=LMT)
    except (OSError, KeyError, ValueError, IndexError, TypeError) as exc:
        raise InputError(str(path), f"neither h5lmt nor a TOKIO time series: {exc}") from exc


def _h5lmt(file: Any) -> Iterator[_Rows]:
    """Bytes a second in each interval, by OST and time; the last time has no interval."""
    times = file["FSStepsGroup/FSStepsDataSet"][:].astype(np.int64)
    read = file["OSTReadGroup/OSTBulkReadDataSet"]
    names = [_text(name) for name in read.attrs["OSTNames"]]
    missing = file["FSMissingGroup/FSMissingDataSet"][:].T != 0 if "FSMissingGroup" in file else None
    written = file["OSTWriteGroup/OSTBulkWriteDataSet"][:]
    count = min(times.size, read.shape[1])
    step = _steps(times)[:count, None]
    amounts = {"read": read[:].T[:count] * step, "written": written.T[:count] * step}
    yield from _amount_rows(names, times, amounts, missing)


def _tokio(file: Any) -> Iterator[_Rows]:
    """`readbytes` holds bytes of each interval, whatever its attribute `units` says; `readrates` bytes a
    second."""
    targets = file["datatargets"]
    is_rate = "readbytes" not in targets
    kind = "rates" if is_rate else "bytes"
    read, written = targets[f"read{kind}"], targets[f"write{kind}"]
    names = [_text(name) for name in read.attrs["columns"]]
    times = targets["timestamps"][:].astype(np.int64)
    step = _steps(times)[:, None] if is_rate else 1
    amounts = {"read": read[:] * step, "written": written[:] * step}
    yield from _amount_rows(names, times, amounts, None)


def _steps(times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Length of the interval that begins at each time; the last one as long as the one before."""
    found: NDArray[np.int64] = np.diff(times, append=2 * times[-1] - times[-2])
    return found


def _amount_rows(
    names: Sequence[str],
    times: NDArray[np.int64],
    amounts: Mapping[str, NDArray[Any]],
    missing: NDArray[np.bool_] | None,
) -> Iterator[_Rows]:
    """Rows from bytes (T, OST) of the intervals that begin at `times`."""
    steps = _steps(times)
    count = min(times.size, amounts["read"].shape[0])
    for ost, name in enumerate(names):
        for at in range(count):
            step = int(steps[at])
            both = float(amounts["read"][at, ost]), float(amounts["written"][at, ost])
            is_missing = (
                missing is not None and at < missing.shape[0] and ost < missing.shape[1] and missing[at, ost]
            )
            is_wrong = not all(np.isfinite(both)) or min(both) < 0 or not 0 < step <= _MAX_GAP_SECONDS
            if is_missing or is_wrong:
                continue
            begin = int(times[at]) * 1_000_000
            yield _row(name, begin, begin + step * 1_000_000, round(both[0]), round(both[1]))


def _summaries(path: Path) -> pa.Table:
    """TOKIO's summaries: their first column, an index, may have no name; the rows then have a cell more."""
    csv.field_size_limit(1 << 20)
    lines = csv.reader(io.StringIO(file_text(path)))
    header = next(lines, [])
    needed = (
        "darshan_jobid",
        "darshan_start_time",
        "darshan_end_time",
        "fs_tot_bytes_read",
        "fs_tot_bytes_written",
    )
    missing = [name for name in needed if name not in header]
    if missing:
        raise InputError(str(path), f"no LMT data: no column {', '.join(missing)}, no database, no HDF5")
    rows = []
    for cells in lines:
        row = dict(zip(header, cells[len(cells) - len(header) :], strict=False))
        try:
            job, begin, end, read, written = (int(float(row[name])) for name in needed)
        except (ValueError, KeyError, OverflowError):
            continue  # a run without the one or the other
        rows.append(
            {
                "job_id": job,
                "file_system": row.get("_file_system", ""),
                "start_us": begin * 1_000_000,
                "end_us": end * 1_000_000,
                "bytes_read": read,
                "bytes_written": written,
            }
        )
    return pa.Table.from_pylist(rows, schema=LMT_TOTAL)


def _row(ost: str, begin: int, end: int, read: int, written: int) -> _Rows:
    return {
        "file_system": ost.partition("-")[0] if "-" in ost else "",
        "ost": ost,
        "ost_index": ost_number(ost),
        "start_us": begin,
        "end_us": end,
        "bytes_read": read,
        "bytes_written": written,
    }


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
