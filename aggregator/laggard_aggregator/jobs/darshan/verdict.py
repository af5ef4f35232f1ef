"""The verdict on one job: bandwidths on the critical path, causes by their time, rules not judged."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pyarrow.compute as pc

from laggard_aggregator.files.json_line import six_digits
from laggard_aggregator.jobs.darshan.critical_files import critical_file_findings
from laggard_aggregator.jobs.darshan.factors import FactorColumns, JobFactors, job_factors, record_factors
from laggard_aggregator.jobs.darshan.findings import MIB, IoFinding, NotJudged, ranked
from laggard_aggregator.jobs.darshan.intervals import busy_time
from laggard_aggregator.jobs.darshan.job_tables import Accesses, JobTables, dxt_intervals, integers
from laggard_aggregator.jobs.darshan.patterns import metadata_by_log, metadata_findings, pattern_findings
from laggard_aggregator.jobs.darshan.stragglers import straggler_findings
from laggard_aggregator.status.formatting import counted

JUDGED = ("POSIX", "STDIO")
"""Modules at the bottom of the application; those above them count the same bytes again."""
_STRAGGLERS = ("ost", "node", "rank", "imbalance")
_EXPLAINED = 0.8
"""Share of a file's time that a straggler must explain for the file not to be named."""
_UNREAD = {
    "DFS": "DAOS files bypass POSIX, and Laggard does not read this module",
    "DAOS": "DAOS objects bypass POSIX, and Laggard does not read this module",
    "MDHIM": "Laggard does not read this module",
}
_TRACES = {"POSIX": "DXT_POSIX"}


@dataclass(frozen=True)
class DirectionVerdict:
    """I/O of one module in one direction.

    `lower_us`: a lower bound of the time with activity; exact where `is_traced`. `by_slowest`: Darshan's own
    estimate of the bandwidth of reads and writes together, in MiB/s.
    """

    accesses: Accesses
    columns: FactorColumns
    factors: JobFactors
    lower_us: int
    is_traced: bool
    by_slowest: float | None

    @property
    def bytes(self) -> int:
        """Bytes moved."""
        return int(self.accesses.bytes.sum())

    @property
    def mib_per_second(self) -> float | None:
        """Bytes by the time with activity; None where there is none."""
        return self.bytes / MIB / (self.accesses.busy_us / 1e6) if self.accesses.busy_us else None

    @property
    def top_share(self) -> float | None:
        """Share of the critical path that the first of the critical files has."""
        path = self.accesses.path
        return float(path.exclusive.max() / self.accesses.busy_us) if self.accesses.busy_us else None


@dataclass(frozen=True)
class JobVerdict:
    """The verdict; `findings` by the time they explain."""

    tables: JobTables
    directions: list[DirectionVerdict]
    findings: list[IoFinding]
    not_judged: list[NotJudged]
    extra: list[dict[str, Any]] = field(default_factory=list)


def judge(tables: JobTables) -> JobVerdict:
    """The verdict on a job."""
    directions: list[DirectionVerdict] = []
    findings: list[IoFinding] = []
    not_judged = list(_limits(tables))
    every: list[Accesses] = []
    nodes = _nodes(tables)
    moved = {module: _moved(tables, module) for module in JUDGED}
    for module in JUDGED:
        for direction in ("read", "write"):
            accesses = Accesses(tables, module, direction)
            every.append(accesses)
            if not accesses.requests.sum():
                continue
            columns = record_factors(accesses)
            lower, is_traced = _lower_bound(tables, accesses)
            factors = job_factors(accesses, columns, _ost_count(tables))
            directions.append(
                DirectionVerdict(accesses, columns, factors, lower, is_traced, _by_slowest(accesses))
            )
            if accesses.without_times:
                reason = (
                    f"{accesses.without_times} of {accesses.requests.size} records have no times, or times "
                    "outside of the run, which cannot be right: their time does not count"
                )
                not_judged.append(NotJudged(tables.job_id, f"times ({module} {direction})", reason))
            if not accesses.busy_us:
                reason = "no record has a length of time"
                not_judged.append(NotJudged(tables.job_id, f"{module} {direction}", reason))
                continue
            if module == "STDIO" and moved.get("POSIX", 0) > moved["STDIO"]:
                continue  # streams beside the job's real I/O, such as its standard output
            own: list[IoFinding] = []
            for finding in chain(
                straggler_findings(tables, accesses, nodes), pattern_findings(tables, accesses, columns)
            ):
                if isinstance(finding, IoFinding):
                    own.append(finding)
                else:
                    not_judged.append(finding)
            known = max((finding.share for finding in own if finding.kind in _STRAGGLERS), default=0.0)
            by_files = critical_file_findings(tables, accesses)
            own += [finding for finding in by_files if known < _EXPLAINED * finding.share]
            findings += own
    for finding in metadata_findings(tables, every):
        (findings if isinstance(finding, IoFinding) else not_judged).append(finding)  # type: ignore[arg-type]
    extra = list(_log_records(tables, every)) if len(tables.logs) > 1 else []
    return JobVerdict(tables, directions, ranked(findings), list(dict.fromkeys(not_judged)), extra)


def _log_records(tables: JobTables, every: list[Accesses]) -> Iterator[dict[str, Any]]:
    """One record a log of a job that has several: its share of metadata."""
    times = metadata_by_log(every)
    for row in tables.logs.sort_by([("start_us", "ascending"), ("path", "ascending")]).to_pylist():
        of_log = times.get(row["log"])
        share = of_log.share if of_log and of_log.every_us else None
        yield {"record": "log", "job": tables.job_id, "log": row["path"], "metadata": six_digits(share)}


def _limits(tables: JobTables) -> Iterator[NotJudged]:
    """Modules that are missing, cut short, or not read."""
    modules = tables.modules
    if not modules:
        yield NotJudged(tables.job_id, "all", "the log has no module: the job did no I/O that Darshan saw")
    elif "POSIX" not in modules:
        yield NotJudged(tables.job_id, "POSIX", "the log has no POSIX module")
    elif not len(tables.of_module("POSIX")):
        yield NotJudged(tables.job_id, "POSIX", "the POSIX module has no record")
    elif not any(integers(tables.of_module("POSIX"), name, 0).any() for name in ("reads", "writes")):
        yield NotJudged(tables.job_id, "POSIX", "the POSIX module has no read or write")
    if tables.logs["run_us"].null_count:
        reason = "the log has no end, as of a job that was killed: the run is taken to end with its last I/O"
        yield NotJudged(tables.job_id, "length of the run", reason)
    for module in JUDGED:
        count = tables.of_module(module)["reads"].null_count
        if count:
            reason = f"{counted(count, 'record')} with counters that cannot be right: left out"
            yield NotJudged(tables.job_id, module, reason)
    for module in sorted(tables.partial):
        reason = "partial: Darshan ran out of memory for records, so files are missing from the figures"
        yield NotJudged(tables.job_id, module, reason)
    for module in sorted(modules & _UNREAD.keys()):
        yield NotJudged(tables.job_id, module, _UNREAD[module])


def _moved(tables: JobTables, module: str) -> int:
    rows = tables.of_module(module)
    return sum(int(np.maximum(integers(rows, name, 0), 0).sum()) for name in ("bytes_read", "bytes_written"))


def _lower_bound(tables: JobTables, accesses: Accesses) -> tuple[int, bool]:
    """A lower bound of the time with activity, and whether it is exact: from a trace that is not cut short.

    A rank does one call at a time, so its calls' time is a lower bound; so is the mean over all ranks, which
    holds for shared records too.
    """
    module = _TRACES.get(accesses.module)
    traced = dxt_intervals(tables, accesses.module, accesses.direction) if module in tables.modules else None
    by_trace = 0 if traced is None else min(busy_time(*traced), accesses.busy_us)
    is_timed = not tables.dxt["start_us"].null_count
    if traced is not None and module is not None and is_timed and tables.is_whole(module, accesses.module):
        return by_trace, True
    by_rank = accesses.busiest_us(accesses.time_us, np.ones(accesses.rank.size, np.bool_))
    mean = int(accesses.time_us.sum() / max(tables.processes, 1))
    return min(max(by_trace, by_rank, mean), accesses.busy_us), False


def _by_slowest(accesses: Accesses) -> float | None:
    """Darshan's own estimate in MiB/s: all bytes of the module by the time of its slowest process."""
    rows = accesses.rows
    moved = sum(int(np.maximum(integers(rows, name, 0), 0).sum()) for name in ("bytes_read", "bytes_written"))
    total = np.zeros(len(rows), np.int64)
    for name in ("read", "write", "meta"):
        total += integers(rows, f"{name}_time_us", 0)
    unique = accesses.busiest_us(total, np.ones(len(rows), np.bool_))
    shared = int(integers(rows, "slowest_time_us", 0)[accesses.rank < 0].sum())
    return moved / MIB / ((unique + shared) / 1e6) if unique + shared > 0 else None


def _ost_count(tables: JobTables) -> int | None:
    if not len(tables.osts):
        return None
    pairs = tables.osts.select(["mount", "ost"]).group_by(["mount", "ost"]).aggregate([])
    return len(pairs)


def _nodes(tables: JobTables) -> dict[int, str]:
    """Node of each rank, from the trace."""
    if not len(tables.dxt):
        return {}
    pairs = tables.dxt.select(["rank", "node"]).group_by(["rank", "node"]).aggregate([])
    known = pairs.filter(pc.greater_equal(pairs["rank"], 0))
    return dict(zip(integers(known, "rank").tolist(), known["node"].to_pylist(), strict=True))
