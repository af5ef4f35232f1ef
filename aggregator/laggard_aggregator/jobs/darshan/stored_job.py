"""The verdict on a job of a store: with its Slurm step, LMT's traffic, alarms, and earlier runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from laggard_aggregator.archive.table import Table, check_archive
from laggard_aggregator.detect.peers import mad_spread
from laggard_aggregator.files.json_line import six_digits
from laggard_aggregator.jobs.darshan.engines import LogEngine
from laggard_aggregator.jobs.darshan.findings import IoFinding, NotJudged, ranked, rate
from laggard_aggregator.jobs.darshan.job_list import JobFilter, job_list
from laggard_aggregator.jobs.darshan.job_tables import Accesses, JobTables, integers, texts
from laggard_aggregator.jobs.darshan.lmt_input import file_system_of, ost_number
from laggard_aggregator.jobs.darshan.log_runs import LogRun, jobs_of_logs
from laggard_aggregator.jobs.darshan.store import day_of
from laggard_aggregator.jobs.darshan.tables import OF_A_LOG
from laggard_aggregator.jobs.darshan.verdict import JobVerdict, judge
from laggard_aggregator.status.formatting import counted
from laggard_common.errors import InputError

MIN_EARLIER_RUNS: Final = 5
MAX_EARLIER_RUNS: Final = 100
MAX_SIZE_RATIO: Final = 4.0
"""Largest ratio of bytes between runs of the same size."""
MAX_OF_EARLIER: Final = 0.5
"""Share of the median bandwidth of earlier runs below which a job is slower than before."""
MIN_EARLIER_SCORE: Final = 3.0
_START_TOLERANCE_US: Final = 5_000_000


def judge_stored(engine: LogEngine, job: int, archive: Path | None = None) -> JobVerdict:
    """The verdict on a job. Raises InputError when the store has no log of it."""
    parts = [engine.query(f"select * from {table} where job_id = {int(job)}") for table in OF_A_LOG]  # noqa: S608
    if not len(parts[0]):
        raise InputError("", f"job {job}: the store has no Darshan log of it")
    parts, others = _newest(parts)
    tables = JobTables(*parts)
    verdict = judge(tables)
    users = sorted(set(tables.logs["uid"].to_pylist()))
    findings, not_judged, extra = list(verdict.findings), list(verdict.not_judged), list(verdict.extra)
    if len(users) > 1:
        reason = f"the store has logs of this number by users {', '.join(map(str, users))}, judged as one job"
        not_judged.insert(0, NotJudged(tables.job_id, "job", reason))
    if others:
        reason = f"{counted(others, 'earlier job')} of this number in the store: the newest is judged"
        not_judged.insert(0, NotJudged(tables.job_id, "number", reason))
    extra += _steps(engine, tables)
    joined = list(_coverage(engine, verdict))
    if not joined:
        not_judged.append(NotJudged(tables.job_id, "coverage", "the store has no LMT data of that time"))
    findings += _earlier(engine, verdict)
    if archive is not None:
        check_archive(archive)
        joined += _alarms(verdict, Table(archive, "alarms"))
    extra += [finding for finding in joined if not isinstance(finding, NotJudged)]
    not_judged += dict.fromkeys(finding for finding in joined if isinstance(finding, NotJudged))
    return JobVerdict(tables, verdict.directions, ranked(findings), not_judged, extra)


def _newest(parts: list[pa.Table]) -> tuple[list[pa.Table], int]:
    """The rows of the newest job of one number, of the tables of OF_A_LOG, and how many others have it."""
    logs = parts[0].to_pylist()
    jobs = jobs_of_logs([LogRun(row["job_id"], 0, row["start_us"], row["end_us"]) for row in logs])
    if len(jobs) == 1:
        return parts, 0
    newest = max(jobs, key=lambda places: min(logs[at]["start_us"] for at in places))
    own = pa.array([logs[at]["log"] for at in newest], pa.int64())
    return [table.filter(pc.is_in(table["log"], own)) for table in parts], len(jobs) - 1


def _shortest(step: Mapping[str, Any]) -> tuple[int, str]:
    return step["end_us"] - step["start_us"], step["step"]


def _steps(engine: LogEngine, tables: JobTables) -> Iterator[dict[str, Any]]:
    """The step of each log: the shortest that covers it and has a node count that divides its processes."""
    sql = f"select distinct step, start_us, end_us, node_count from slurm_step where job_id = {tables.job_id}"  # noqa: S608
    steps = [row for row in engine.query(sql).to_pylist() if row["start_us"] and row["end_us"]]
    for log in tables.logs.to_pylist():
        fitting = [
            row
            for row in steps
            if row["step"] not in ("batch", "extern")
            and row["start_us"] <= log["start_us"] + _START_TOLERANCE_US
            and row["end_us"] >= log["end_us"] - _START_TOLERANCE_US
            and row["node_count"]
            and log["processes"] % row["node_count"] == 0
        ]
        if not fitting:
            continue
        step = min(fitting, key=_shortest)
        if len({row["node_count"] for row in fitting if _shortest(row) == _shortest(step)}) > 1:
            continue  # of two clusters
        yield {
            "record": "step",
            "job": tables.job_id,
            "log": log["path"],
            "step": f"{tables.job_id}.{step['step']}",
            "nodes": step["node_count"],
            "ranks_per_node": log["processes"] // step["node_count"],
        }


def _coverage(engine: LogEngine, verdict: JobVerdict) -> Iterator[dict[str, Any] | NotJudged]:
    """Share of the traffic of the job's OSTs, or of its whole file system, that was the job's."""
    tables = verdict.tables
    starts = ", ".join(str(log["start_us"] // 1_000_000 * 1_000_000) for log in tables.logs.to_pylist())
    totals = engine.query(
        f"select distinct file_system, start_us, end_us, bytes_read, bytes_written from lmt_total "  # noqa: S608
        f"where job_id = {tables.job_id} and start_us - start_us % 1000000 in ({starts})"
    ).to_pylist()
    subject = "file system" if totals else "OSTs"
    listed = totals or engine.query("select distinct file_system from lmt").to_pylist()
    used = _UsedOsts.of(tables, {row["file_system"] for row in listed})
    if used is None:
        yield NotJudged(tables.job_id, "coverage", _MANY_SYSTEMS.format("LMT"))
        return
    for direction in verdict.directions:
        accesses = direction.accesses
        if accesses.module != "POSIX" or not accesses.busy_us:
            continue
        column = "bytes_read" if accesses.direction == "read" else "bytes_written"
        if totals:
            traffic = sum(row[column] for row in totals if used.is_system(row["file_system"]))
            moved = int(accesses.bytes[used.has(accesses)].sum()) if used.by_name else direction.bytes
        else:
            traffic = _traffic(engine, used, accesses, column)
            moved = int(accesses.bytes[used.has(accesses)].sum())
        if traffic > 0:
            yield {
                "record": "coverage",
                "job": tables.job_id,
                "direction": accesses.direction,
                "of": subject,
                "job_bytes": moved,
                "lmt_bytes": int(traffic),
                "coverage": six_digits(moved / traffic),
            }


def _traffic(engine: LogEngine, used: "_UsedOsts", accesses: Accesses, column: str) -> float:
    """Bytes of the job's OSTs by LMT while it did I/O; an interval counts by the part that lies within."""
    if not used.osts:
        return 0.0
    low, high = int(accesses.start[accesses.timed].min()), int(accesses.end[accesses.timed].max())
    rows = engine.query(
        f"select file_system, ost_index, sum({column} * 1e0 * "  # noqa: S608
        f"(least(end_us, {high}) - greatest(start_us, {low})) / (end_us - start_us)) as total "
        f"from lmt where start_us < {high} and end_us > {low} and end_us > start_us "
        f"and ost_index in ({', '.join(map(str, sorted({ost for _, ost in used.osts})))}) "
        f"group by file_system, ost_index"
    ).to_pylist()
    return float(sum(row["total"] for row in rows if used.is_one(row["file_system"], row["ost_index"])))


_MANY_SYSTEMS: Final = (
    "{} has several file systems, and none has the name of a mount point of the job: OSTs of one number "
    "cannot be told apart"
)


@dataclass(frozen=True, slots=True)
class _UsedOsts:
    """The OSTs of a job as another source names them.

    `osts`: pairs of the last part of the mount point, which sites name after the file system, and the number.
    `by_name`: the source has the name of a mount; else it has one file system, and numbers alone decide.
    """

    osts: frozenset[tuple[str, int]]
    files: NDArray[np.int64]
    by_name: bool

    @classmethod
    def of(cls, tables: JobTables, systems: set[str]) -> "_UsedOsts | None":
        """The job's OSTs for a source with the file systems `systems`; None where these are ambiguous."""
        mounts = pc.unique(tables.osts["mount"]).to_pylist()
        named = [mount for mount in mounts if _last_part(mount) in systems]
        if not named and len(systems) > 1:
            return None
        kept = pc.is_in(tables.osts["mount"], pa.array(named or mounts, pa.string()))
        placed = tables.osts.filter(kept)
        pairs = placed.select(["mount", "ost"]).group_by(["mount", "ost"]).aggregate([]).to_pylist()
        osts = frozenset((_last_part(row["mount"]), row["ost"]) for row in pairs)
        return cls(osts, np.unique(integers(placed, "file_id")), bool(named))

    def is_system(self, name: str) -> bool:
        """True for a file system of the job."""
        return not self.by_name or any(mount == name for mount, _ in self.osts)

    def is_one(self, file_system: str, number: int | None) -> bool:
        """True for an OST of the job."""
        if self.by_name:
            return (file_system, number) in self.osts
        return any(ost == number for _, ost in self.osts)

    def has(self, accesses: Accesses) -> NDArray[np.bool_]:
        """Records (R,) of files on these OSTs."""
        is_on: NDArray[np.bool_] = np.isin(accesses.file_id, self.files)
        return is_on


def _last_part(mount: str) -> str:
    return mount.rpartition("/")[2]


def _earlier(engine: LogEngine, verdict: JobVerdict) -> Iterator[IoFinding]:
    """Directions in which the job was far slower than the application's earlier runs of about its size."""
    tables = verdict.tables
    jobs = _earlier_jobs(engine, tables)
    if len(jobs) < MIN_EARLIER_RUNS:
        return
    for direction in verdict.directions:
        accesses, own = direction.accesses, direction.mib_per_second
        if accesses.module != "POSIX" or own is None:
            continue
        wanted = JobFilter(accesses.direction, jobs=jobs)
        earlier = [
            row["mib_per_second"]
            for row in job_list(engine, wanted, factors=False).to_pylist()
            if 1 / MAX_SIZE_RATIO <= row["bytes"] / max(direction.bytes, 1) <= MAX_SIZE_RATIO
        ]
        if len(earlier) < MIN_EARLIER_RUNS:
            continue
        median = float(np.median(earlier))
        logs = np.log(np.array(earlier))
        spread = max(mad_spread(logs), 0.1)
        if own > MAX_OF_EARLIER * median or np.log(median / own) / spread < MIN_EARLIER_SCORE:
            continue
        text = (
            f"{rate(own)} MiB/s where {len(earlier)} earlier runs of this application and size had a median "
            f"of {rate(median)}."
        )
        advice = "Compare its input and options with an earlier run; if they are alike, ask the operators."
        share = 1.0 - own / median
        yield IoFinding(tables.job_id, accesses.direction, "history", None, median / own, share, text, advice)


def _earlier_jobs(engine: LogEngine, tables: JobTables) -> list[int]:
    """The last jobs before this one of its application, with half to twice as many processes."""
    names = ", ".join(
        "'" + name.replace("'", "''") + "'" for name in sorted(set(texts(tables.logs, "application")))
    )
    if "\\" in names:
        return []  # Spark reads escapes, DuckDB does not
    rows = engine.query(
        f"select job_id, min(start_us) as start_us from job where application in ({names}) "  # noqa: S608
        f"and start_us < {tables.start_us} and job_id <> {tables.job_id} "
        f"and processes * 2 >= {tables.processes} and processes <= {2 * tables.processes} "
        f"group by job_id order by start_us desc nulls last, job_id nulls last limit {MAX_EARLIER_RUNS}"
    )
    ids: list[int] = rows["job_id"].to_pylist()
    return ids


def _alarms(verdict: JobVerdict, alarms: Table) -> Iterator[dict[str, Any] | NotJudged]:
    """Alarms of Laggard on the job's OSTs that were raised and not cleared before the job's I/O ended."""
    tables = verdict.tables
    low, high = tables.start_us / 1e6, tables.end_us / 1e6
    rows = (row for table in alarms.scan(last_day=day_of(tables.end_us)) for row in table.to_pylist())
    of_osts = [row for row in rows if ost_number(row["component"]) is not None]
    used = _UsedOsts.of(tables, {file_system_of(row["component"]) for row in of_osts})
    if used is None:
        yield NotJudged(tables.job_id, "alarms", _MANY_SYSTEMS.format("Laggard's archive"))
        return
    standing: dict[tuple[str, str], dict[str, Any]] = {}
    for row in sorted(of_osts, key=lambda alarm: alarm["at"]):
        component = row["component"]
        if row["at"] > high or not used.is_one(file_system_of(component), ost_number(component)):
            continue
        key = (row["component"], row["metric"])
        if row["transition"] == "raised":
            standing[key] = row
        elif row["at"] < low:
            standing.pop(key, None)
    for (component, metric), row in sorted(standing.items()):
        yield {
            "record": "alarm",
            "job": tables.job_id,
            "component": component,
            "metric": metric,
            "since": row["since"],
            "severity": row["severity"],
        }
