"""Rows of the store's tables from one Darshan log, written as Arrow files for the caller to map."""

import os
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from laggard_aggregator.jobs.darshan import tables
from laggard_aggregator.jobs.darshan.darshan_log import DarshanLog, LogHead, ModuleRecords
from laggard_aggregator.jobs.darshan.job_tables import JobTables
from laggard_aggregator.jobs.darshan.log_runs import LogRun
from laggard_aggregator.jobs.darshan.request_sizes import small_requests
from laggard_aggregator.jobs.darshan.run_times import RunTimes, bounded, record_times
from laggard_aggregator.jobs.darshan.stripes import StripesOfFiles, highest_bytes

_ALL_RANKS: Final = -1
_DXT: Final = {"DXT_POSIX": "POSIX", "DXT_MPIIO": "MPI-IO"}
_MAX_COMMAND_CHARS: Final = 1000
_AMOUNT: Final = re.compile(r".*OPENS|([A-Z]+_)?(READS|WRITES)|BYTES_.*|SIZE_.*")
MAX_AMOUNT: Final = 1 << 53
"""Requests or bytes of one file and run; a record with more, or less than none, is damaged and unknown."""


def convert(path: Path, log: int, directory: Path) -> None:
    """Writes the tables of OF_A_LOG from `path` to `directory`, one Arrow file each. Raises InputError."""
    with closing(DarshanLog(path)) as opened:
        head = opened.head()
        names = opened.names()
        modules = {
            name: records for name in ("POSIX", "STDIO", "MPI-IO") if (records := opened.records(name))
        }
        run = RunTimes.of(str(path), head, modules.values())
        stripes = StripesOfFiles(opened.layouts(), highest_bytes(modules))
        files = _file_table(log, head, run, names, modules, stripes)
        _write(
            directory,
            "darshan_job",
            [_job_table(log, os.fsencode(path).decode("utf-8", "replace"), head, run, files)],
        )
        _write(directory, "darshan_file", [files])
        _write(directory, "job_ost", [_ost_table(log, head, names, stripes)])
        _write(directory, "dxt", _dxt_tables(log, head, run, opened))


def open_converted(directory: Path, table: str) -> pa.Table:
    """A table that `convert` wrote, mapped into memory."""
    return pa.ipc.open_file(pa.memory_map(str(directory / f"{table}.arrow"))).read_all()


def log_of(directory: Path) -> LogRun:
    """Job, user and time of a converted log; the logs of one job are judged together."""
    row = open_converted(directory, "darshan_job").to_pylist()[0]
    return LogRun(row["job_id"], row["uid"], row["start_us"], row["end_us"])


def opened_job(directories: Sequence[Path]) -> JobTables:
    """The rows of one job, from the folders into which its logs were converted."""
    names = tables.OF_A_LOG
    return JobTables(
        *(pa.concat_tables([open_converted(directory, name) for directory in directories]) for name in names)
    )


def _write(directory: Path, table: str, parts: Iterable[pa.Table]) -> None:
    schema = tables.TABLES[table]
    with pa.OSFile(str(directory / f"{table}.arrow"), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for part in parts:
            writer.write_table(part)


def _job_table(log: int, path: str, head: LogHead, run: RunTimes, files: pa.Table) -> pa.Table:
    own = files.filter(pc.is_in(files["module"], pa.array(["POSIX", "STDIO"])))
    sums = {name: _known_sum(own[name]) for name in ("bytes_read", "bytes_written", "reads", "writes")}
    posix = own.filter(pc.equal(own["module"], "POSIX"))
    for name in ("sequential_reads", "sequential_writes"):  # others have null
        sums[name] = _known_sum(posix[name])
    requests = [_known_sum(posix[name]) for name in ("reads", "writes")]
    sums["posix_requests"] = None if None in requests else sum(count or 0 for count in requests)
    by_module = {row["values"]: row["counts"] for row in pc.value_counts(files["module"]).to_pylist()}
    collective = pc.greater(pc.add(files["collective_reads"], files["collective_writes"]), 0)
    is_mpiio = pc.equal(files["module"], "MPI-IO")
    row = {
        "log": log,
        "job_id": head.job_id,
        "uid": head.uid,
        "start_us": run.start_us,
        "end_us": run.end_us,
        "run_us": round(bounded(head.run_seconds) * 1e6) if run.has_end else None,
        "processes": head.processes,
        "path": path,
        "application": application(head.command),
        "command": head.command[:_MAX_COMMAND_CHARS],
        "log_version": head.version,
        "modules": ",".join(head.modules),
        "partial": ",".join(head.partial),
        "files": len(pc.unique(own["file_id"])),
        **sums,
        "posix_files": by_module.get("POSIX", 0),
        "mpiio_files": by_module.get("MPI-IO", 0),
        "collective_files": pc.sum(pc.and_(collective, is_mpiio)).as_py() or 0,
    }
    return pa.Table.from_pylist([row], schema=tables.DARSHAN_JOB)


def _known_sum(values: pa.ChunkedArray) -> int | None:
    """The sum of the known values; None where there are some and all are unknown."""
    total: int | None = pc.sum(values).as_py()
    return 0 if total is None and not len(values) else total


def application(command: str) -> str:
    """Name of the program in a command line."""
    return posixpath.basename(command.split(" ", 1)[0]) or "unknown"


def _file_table(  # noqa: PLR0917
    log: int,
    head: LogHead,
    run: RunTimes,
    names: Mapping[int, str],
    modules: Mapping[str, ModuleRecords],
    stripes: StripesOfFiles,
) -> pa.Table:
    mount_of = _MountPoints(head.mounts)
    mpiio = modules.get("MPI-IO")
    collective = _collective(mpiio)
    parts = []
    for module, records in modules.items():
        count = records.ids.size
        ids = records.ids.tolist()
        file_names = [names.get(file, "") for file in ids]
        mounts = [mount_of(name) for name in file_names]
        processes = np.where(records.ranks == _ALL_RANKS, head.processes, 1)
        columns: dict[str, Any] = {
            "log": np.full(count, log),
            "job_id": np.full(count, head.job_id),
            "module": [module] * count,
            "file_id": records.ids,
            "rank": records.ranks,
            "name": file_names,
            "mount": [mount for mount, _ in mounts],
            "file_system": [kind for _, kind in mounts],
            "processes": processes,
            "collective_reads": [collective.get(file, (0, 0))[0] for file in ids],
            "collective_writes": [collective.get(file, (0, 0))[1] for file in ids],
            "mpiio": [int(file in collective) for file in ids],
            **_counters(module, records),
            **record_times(run, records, processes),
            **stripes.columns(records.ids),
        }
        arrays = [_array(columns.get(field.name), field.type, count) for field in tables.DARSHAN_FILE]
        parts.append(pa.table(arrays, schema=tables.DARSHAN_FILE))
    return pa.concat_tables(parts) if parts else tables.DARSHAN_FILE.empty_table()


def _array(values: Any, kind: pa.DataType, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, kind)
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)


def _counters(module: str, records: ModuleRecords) -> dict[str, Any]:
    counters = records.counters
    if module == "MPI-IO":
        kinds = ("INDEP", "COLL", "SPLIT", "NB")
        columns = {
            "opens": counters["INDEP_OPENS"] + counters["COLL_OPENS"],
            "reads": _sum(counters, [f"{kind}_READS" for kind in kinds]),
            "writes": _sum(counters, [f"{kind}_WRITES" for kind in kinds]),
            **small_requests(counters, "AGG_"),
        }
    else:
        columns = {"opens": counters["OPENS"], "reads": counters["READS"], "writes": counters["WRITES"]}
    columns |= {"bytes_read": counters["BYTES_READ"], "bytes_written": counters["BYTES_WRITTEN"]}
    if module == "POSIX":
        columns |= {
            "consecutive_reads": counters["CONSEC_READS"],
            "consecutive_writes": counters["CONSEC_WRITES"],
            "sequential_reads": counters["SEQ_READS"],
            "sequential_writes": counters["SEQ_WRITES"],
            **small_requests(counters),
        }
    if "SLOWEST_RANK_BYTES" in counters:
        columns["slowest_bytes"] = counters["SLOWEST_RANK_BYTES"]
    amounts = [values for name, values in counters.items() if _AMOUNT.fullmatch(name)]
    is_odd = np.logical_or.reduce([(column < 0) | (column > MAX_AMOUNT) for column in amounts])
    possible: dict[str, Any] = {name: pa.array(column, mask=is_odd) for name, column in columns.items()}
    return possible | ({"slowest_rank": counters["SLOWEST_RANK"]} if "SLOWEST_RANK" in counters else {})


def _sum(counters: Mapping[str, NDArray[np.int64]], names: Iterable[str]) -> NDArray[np.int64]:
    total = np.zeros_like(next(iter(counters.values())))
    for name in names:
        total = total + np.maximum(counters[name], 0)
    return total


def _collective(mpiio: ModuleRecords | None) -> dict[int, tuple[int, int]]:
    """Collective reads and writes by file; a file that MPI-IO did not open is not there."""
    requests: dict[int, tuple[int, int]] = {}
    if mpiio is None:
        return requests
    counters = mpiio.counters
    for file, reads, writes in zip(
        mpiio.ids.tolist(), counters["COLL_READS"].tolist(), counters["COLL_WRITES"].tolist(), strict=True
    ):
        before = requests.get(file, (0, 0))
        requests[file] = (before[0] + max(reads, 0), before[1] + max(writes, 0))
    return requests


class _MountPoints:
    """Mount point and file system type of a file name, both empty where no mount is above it."""

    def __init__(self, mounts: list[tuple[str, str]]) -> None:
        self._mounts = [(path.rstrip("/") + "/", path, kind) for path, kind in mounts]
        self._known: dict[str, tuple[str, str]] = {}

    def __call__(self, name: str) -> tuple[str, str]:
        directory = posixpath.dirname(name)
        if directory not in self._known:
            inside = directory + "/"
            self._known[directory] = next(
                ((path, kind) for prefix, path, kind in self._mounts if inside.startswith(prefix)), ("", "")
            )
        return self._known[directory]


def _ost_table(log: int, head: LogHead, names: Mapping[int, str], layouts: StripesOfFiles) -> pa.Table:
    mount_of = _MountPoints(head.mounts)
    ids: list[int] = []
    mounts: list[str] = []
    osts: list[int] = []
    stripes: list[int] = []
    for file, of_file in layouts:
        count = len(of_file.osts)
        ids += [file] * count
        mounts += [mount_of(names.get(file, ""))[0]] * count
        osts += of_file.osts
        stripes += [count] * count
    columns = {"log": [log] * len(ids), "job_id": [head.job_id] * len(ids), "file_id": ids, "mount": mounts}
    return pa.table({**columns, "ost": osts, "stripes": stripes}, schema=tables.JOB_OST)


def _dxt_tables(log: int, head: LogHead, run: RunTimes, opened: DarshanLog) -> Iterable[pa.Table]:
    for module, word in _DXT.items():
        for part in opened.requests(module):
            count = part.offset.size
            columns = [
                pa.array(np.full(count, log)),
                pa.array(np.full(count, head.job_id)),
                _repeated(word, count),
                pa.array(np.full(count, part.rank)),
                _repeated(part.node, count),
                pa.array(np.full(count, part.file_id)),
                _repeated("write" if part.is_write else "read", count),
                pa.array(part.offset),
                pa.array(part.length),
                *run.requests(bounded(part.start), bounded(part.end)),
            ]
            yield pa.table(columns, schema=tables.DXT)


def _repeated(text: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), [text]).dictionary_decode()
