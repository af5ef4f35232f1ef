"""Shares of OSTs and MDTs in the work of jobs that no server counts by job.

A client of the file system, a node or a forwarder, counts its requests to each target. Behind a forwarder run
several jobs: each has as much of a target as makes the jobs' work, minute by minute, add up to the requests:
reads, writes and metadata operations each for themselves, as a byte takes another number of requests in each.
Jobs that work at the same times cannot be told apart: they have equal parts of it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.jobs.index.reader import Row
from laggard_aggregator.jobs.join.volumes import targets
from laggard_aggregator.jobs.records.hostlist import short_name
from laggard_aggregator.jobs.verdict.evidence.minute_sums import (
    MINUTE,
    MinuteSums,
    Named,
    NamedSpan,
    Rollups,
    Times,
)

OST, MDT = "OST", "MDT"
USES: Final = {
    OST: ("lustre_osc", ("ost_read_samples", "ost_write_samples")),
    MDT: ("lustre_mdc", ("req_waittime_samples",)),
}
"""Source and fields with the requests of clients to targets of a kind."""
_SERIES: Final = {OST: ("read_bytes", "written_bytes"), MDT: ("metadata_operations",)}
_WORK: Final = {
    "ost_read_samples": ("read_bytes",),
    "ost_write_samples": ("written_bytes",),
    "req_waittime_samples": ("metadata_operations",),
}
"""The columns of `job_series` whose work makes the requests of a field."""
_RIDGE: Final = 1e-3
"""Weight, beside a job's work, of a small amount for each: it decides only where their work is alike."""
_LEAST_OF_MOST: Final = 0.05
"""Least share of a target, by the job's largest one; a target with less was used by others."""

TargetShares = Mapping[str, Mapping[str, float]]
"""Shares by kind and target."""


@dataclass(frozen=True, slots=True)
class WorkDone:
    """Share `done` (n,) of a job's work of a kind at `times` (n,), seconds."""

    times: FloatArray
    done: FloatArray

    def at(self, times: FloatArray) -> FloatArray:
        """The share at other times, of the same shape."""
        done: FloatArray = np.interp(times, self.times, self.done)
        return done


def work_done(job: Mapping[str, Any], series: Row | None, kind: str) -> WorkDone:
    """How a job's work on targets of a kind went on by its `job_series`; evenly over its time without one."""
    return _done(series, _SERIES[kind]) or _evenly(job, 1.0)


def work_by_field(job: Mapping[str, Any], series: Row | None) -> Mapping[str, WorkDone]:
    """How a job's work in requests of each field of USES went on; none where its series has none of these."""
    return {
        field: _done(series, columns) or _evenly(job, 0.0 if _is_known(series, columns) else 1.0)
        for field, columns in _WORK.items()
    }


def _done(series: Row | None, columns: tuple[str, ...]) -> WorkDone | None:
    """The work of some columns, None where the series has none of it."""
    rows = [series[name] for name in columns if series is not None and series[name] is not None]
    if series is not None and rows:
        values = np.nansum(np.stack(rows), axis=0)
        if values.sum() > 0:
            edges = series["start"] + series["resolution_seconds"] * np.arange(values.size + 1)
            return WorkDone(edges, np.concatenate(([0.0], np.cumsum(values))) / values.sum())
    return None


def _evenly(job: Mapping[str, Any], total: float) -> WorkDone:
    return WorkDone(np.array([job["start"], max(job["end"], job["start"] + 1.0)]), np.array([0.0, total]))


def _is_known(series: Row | None, columns: tuple[str, ...]) -> bool:
    return series is not None and any(series[name] is not None for name in columns)


@dataclass(frozen=True, slots=True)
class JobsBehind:
    """Jobs behind clients in a time, seconds: their progress by client, job and field of USES."""

    times: Times
    clients: Mapping[str, Mapping[str, Mapping[str, WorkDone]]]

    def named(self) -> Named:
        """Gives rows of these clients client and target."""
        known = {short_name(name): name for name in self.clients}

        def named(node: str, name: str) -> str | None:
            client, target = known.get(short_name(node)), targets(name)
            return f"{client} {target.pop()}" if client is not None and len(target) == 1 else None

        return named


def target_shares(directory: Path, runs: Sequence[JobsBehind]) -> list[dict[str, TargetShares]]:
    """Shares of targets in the requests of each job of each run. Raises ArchiveError."""
    nodes = frozenset(short_name(name) for run in runs for name in run.clients)
    asked = [NamedSpan(run.times, run.named()) for run in runs]
    used: list[dict[str, dict[str, dict[str, float]]]] = [
        defaultdict(lambda: {OST: {}, MDT: {}}) for _ in runs
    ]
    for kind, (source, fields) in USES.items() if nodes else ():
        every = Rollups(source, fields, nodes).read(directory, asked)
        for run, sums, by_job in zip(runs, every, used, strict=True):
            if sums is not None:
                for field, counts in zip(fields, sums.values, strict=True):
                    _add_counts(by_job, run, (kind, field), sums, counts)
    return [
        {key: {kind: _used(counts) for kind, counts in own.items()} for key, own in f.items()} for f in used
    ]


def _add_counts(
    used: Mapping[str, dict[str, dict[str, float]]],
    run: JobsBehind,
    of_kind: tuple[str, str],
    sums: MinuteSums,
    counts: FloatArray,
) -> None:
    """Adds the requests (C, T) of a kind and field to each target by job."""
    kind, field = of_kind
    edges = sums.start + MINUTE * np.arange(counts.shape[1] + 1)
    work = {
        client: {key: np.diff(by_field[field].at(edges)) for key, by_field in jobs.items()}
        for client, jobs in run.clients.items()
    }
    for name, requests in zip(sums.names, np.nan_to_num(counts), strict=True):
        client, _, target = name.rpartition(" ")
        for key, count in _divided(requests, work[client]).items():
            by_target = used[key][kind]
            by_target[target] = by_target.get(target, 0.0) + count


def _divided(counts: FloatArray, work: Mapping[str, FloatArray]) -> dict[str, float]:
    """Requests (T,) of a client to a target by job, whose work went on by `work` (T,) each."""
    own = {key: done for key, done in work.items() if done.sum() > 0}
    if len(own) < 2:
        return dict.fromkeys(own, float(counts.sum()))
    from scipy.optimize import nnls  # noqa: PLC0415 - takes a quarter of a second, which few daemons need

    shares = np.column_stack([done / done.sum() for done in own.values()])
    ridge = np.sqrt(_RIDGE * float((shares**2).sum(axis=0).mean())) * np.eye(len(own))
    amounts, _ = nnls(np.vstack([shares, ridge]), np.concatenate([counts, np.zeros(len(own))]))
    return dict(zip(own, amounts.tolist(), strict=True))


def _used(counts: Mapping[str, float]) -> dict[str, float]:
    most = max(counts.values(), default=0.0)
    used = {name: count for name, count in counts.items() if count > _LEAST_OF_MOST * most}
    total = sum(used.values())
    return {name: count / total for name, count in used.items()}
