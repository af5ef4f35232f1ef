"""The verdict on a job of a store: with its Slurm step, LMT's traffic, alarms of the time, and earlier
runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.mining.engines import SqlEngine
from laggard_aggregator.mining.findings import IoFinding, NotJudged, ranked, rate
from laggard_aggregator.mining.job_list import JobFilter, job_list
from laggard_aggregator.mining.job_tables import JobTables
from laggard_aggregator.mining.lmt_input import ost_number
from laggard_aggregator.mining.store import day_of
from laggard_aggregator.mining.tables import OF_A_LOG
from laggard_aggregator.mining.verdict import JobVerdict, judge
from laggard_common.errors import InputError

MIN_EARLIER_RUNS: Final = 5
MAX_OF_EARLIER: Final = 0.5
"""Share of the median bandwidth of earlier runs below which a job is slower than before."""
MIN_EARLIER_SCORE: Final = 3.0
_START_TOLERANCE_US: Final = 5_000_000


def judge_stored(engine: SqlEngine, job: int, archive: Path | None = None) -> JobVerdict:
    """The verdict on a job. Raises InputError when the store has no log of it."""
    found = [engine.query(f"select * from {table} where job_id = {int(job)}") for table in OF_A_LOG]  # noqa: S608
    tables = JobTables(*found)
    if not len(tables.logs):
        raise InputError("", f"job {job}: the store has no Darshan log of it")
    verdict = judge(tables)
    findings, not_judged, extra = list(verdict.findings), list(verdict.not_judged), list(verdict.extra)
    extra += _steps(engine, tables)
    coverage = list(_coverage(engine, verdict))
    extra += coverage
    if not coverage:
        not_judged.append(NotJudged(tables.job_id, "coverage", "the store has no LMT data of that time"))
    findings += _earlier(engine, verdict)
    if archive is not None:
        extra += _alarms(verdict, ArchiveReader(archive))
    return JobVerdict(tables, verdict.directions, ranked(findings), not_judged, extra)


def _steps(engine: SqlEngine, tables: JobTables) -> Iterator[dict[str, Any]]:
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
        step = min(fitting, key=lambda row: (row["end_us"] - row["start_us"], row["step"]))
        yield {
            "record": "step",
            "job": tables.job_id,
            "log": log["path"],
            "step": f"{tables.job_id}.{step['step']}",
            "nodes": step["node_count"],
            "ranks_per_node": log["processes"] // step["node_count"],
        }


def _coverage(engine: SqlEngine, verdict: JobVerdict) -> Iterator[dict[str, Any]]:
    """Share of the traffic of the job's OSTs, or of its whole file system, that was the job's."""
    tables = verdict.tables
    starts = ", ".join(str(log["start_us"]) for log in tables.logs.to_pylist())
    totals = engine.query(
        f"select distinct file_system, start_us, end_us, bytes_read, bytes_written from lmt_total "  # noqa: S608
        f"where job_id = {tables.job_id} and start_us - start_us % 1000000 in ({_whole_seconds(starts)})"
    ).to_pylist()
    osts = sorted(set(tables.osts["ost"].to_pylist()))
    for direction in verdict.directions:
        accesses = direction.accesses
        if accesses.module != "POSIX" or not accesses.busy_us:
            continue
        column = "bytes_read" if accesses.direction == "read" else "bytes_written"
        traffic, of = sum(row[column] for row in totals), "file system"
        if not totals and osts:
            low, high = int(accesses.start[accesses.timed].min()), int(accesses.end[accesses.timed].max())
            row = engine.query(
                f"select sum({column}) as total from lmt where start_us < {high} and end_us > {low} "  # noqa: S608
                f"and ost_index in ({', '.join(map(str, osts))})"
            ).to_pylist()[0]
            traffic, of = int(row["total"] or 0), "OSTs"
        if traffic:
            yield {
                "record": "coverage",
                "job": tables.job_id,
                "direction": accesses.direction,
                "of": of,
                "job_bytes": direction.bytes,
                "lmt_bytes": int(traffic),
                "coverage": float(f"{direction.bytes / traffic:.6g}"),
            }


def _whole_seconds(starts: str) -> str:
    return ", ".join(str(int(each) // 1_000_000 * 1_000_000) for each in starts.split(", "))


def _earlier(engine: SqlEngine, verdict: JobVerdict) -> Iterator[IoFinding]:
    """Directions in which the job was far slower than the application's earlier runs of about its size."""
    tables = verdict.tables
    applications = set(tables.logs["application"].to_pylist())
    for direction in verdict.directions:
        accesses, own = direction.accesses, direction.mib_per_second
        if accesses.module != "POSIX" or own is None:
            continue
        rows = job_list(engine, JobFilter(accesses.direction), factors=False).to_pylist()
        earlier = [
            row["mib_per_second"]
            for row in rows
            if row["application"] in applications
            and row["job_id"] != tables.job_id
            and row["start_us"] < tables.start_us
            and 0.5 <= row["processes"] / max(tables.processes, 1) <= 2
        ]
        if len(earlier) < MIN_EARLIER_RUNS:
            continue
        median = float(np.median(earlier))
        logs = np.log(np.array(earlier))
        spread = max(1.4826 * float(np.median(np.abs(logs - np.median(logs)))), 0.1)
        if own > MAX_OF_EARLIER * median or np.log(median / own) / spread < MIN_EARLIER_SCORE:
            continue
        text = (
            f"{rate(own)} MiB/s where {len(earlier)} earlier runs of this application and size had a "
            f"median of "
            f"{rate(median)}."
        )
        advice = "Compare its input and options with an earlier run; if they are alike, ask the operators."
        share = 1.0 - own / median
        yield IoFinding(tables.job_id, accesses.direction, "history", None, median / own, share, text, advice)


def _alarms(verdict: JobVerdict, archive: ArchiveReader) -> Iterator[dict[str, Any]]:
    """Alarms of Laggard on the job's OSTs that were raised and not cleared before the job's I/O ended."""
    tables = verdict.tables
    low, high = tables.start_us / 1e6, tables.end_us / 1e6
    rows: pa.Table = archive.table("alarms", last_day=day_of(tables.end_us))
    osts = set(tables.osts["ost"].to_pylist())
    standing: dict[tuple[str, str], dict[str, Any]] = {}
    for row in sorted(rows.to_pylist(), key=lambda each: each["at"]):
        if ost_number(row["component"]) not in osts or row["at"] > high:
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
