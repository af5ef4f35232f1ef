"""The jobs of a time from the archive: last revisions, who had which node, and who else."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.archive.table import Table, day_of, last_revisions
from laggard_aggregator.jobs.join.accounts import JoinedJob
from laggard_aggregator.jobs.join.membership import Occupation
from laggard_aggregator.jobs.records.store import last_nodes
from laggard_aggregator.jobs.tables import JOB_NODES, JOBS, columns_of

LONGEST_DAYS = 31
"""Days back in which jobs that run on are looked for."""
_JOBS = columns_of(JOBS, "job_key", "revision_at", "cluster", "raw_id", "start", "end", "cpus")
_NODES = columns_of(JOB_NODES, "job_key", "revision_at", "node", "start", "end", "source")


@dataclass(frozen=True, slots=True)
class JobsOfTime:
    """Jobs with an end, and all occupations of nodes, whose job numbers are those of `keys`.

    `ever`: occupations of earlier revisions too.
    """

    jobs: dict[str, JoinedJob]
    keys: list[str]
    occupations: list[Occupation]
    ever: list[Occupation]

    def neighbours(
        self,
        keys: Collection[str],
        new: Collection[str],
        interval_ns: int,
        behind: Sequence[Occupation] = (),
    ) -> set[str]:
        """Jobs with an end that had the id, or a node within one interval, in common with some of `keys`.

        `new`: those of `keys` whose start was unknown. Jobs that ended before the others, or were only
        `behind` the same forwarder or volume, knew of the others. `interval_ns`: the longest between two
        readings.
        """
        changed = [self.jobs[key] for key in keys if key in self.jobs]
        ids = {job.raw_id for job in changed}
        near = {key for key, job in self.jobs.items() if job.raw_id in ids}
        on: dict[str, list[tuple[int, int]]] = {}
        for own, changed_keys in ((self.ever, keys), (behind, new)):
            for occupation in own:
                if (key := self.keys[occupation.job]) in changed_keys:
                    start_ns = occupation.start_ns - (interval_ns if key in new else 0)
                    on.setdefault(occupation.node, []).append((start_ns, occupation.end_ns + interval_ns))
        merged = {node: _merged(spans) for node, spans in on.items()}
        for occupation in (*self.ever, *behind):
            spans = merged.get(occupation.node, ())
            if any(start < occupation.end_ns and occupation.start_ns < end for start, end in spans):
                near.add(self.keys[occupation.job])
        return near & self.jobs.keys()


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The times within some of `spans`, as spans that do not touch."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def read_jobs(directory: Path, site: str, start_ns: int, end_ns: int) -> JobsOfTime:
    """The jobs that had nodes at some time from `start_ns` to `end_ns`. Raises ArchiveError.

    Jobs that have not ended are in the folder of an earlier day, LONGEST_DAYS at most.
    """
    first = day_of(max(start_ns / 1e9 - LONGEST_DAYS * 86_400.0, 0.0))
    jobs = last_revisions(Table(directory, "jobs", site=site).read(_JOBS, first_day=first))
    start = pc.fill_null(jobs["start"], float("inf"))
    end = pc.fill_null(jobs["end"], float("inf"))
    jobs = jobs.filter(pc.and_(pc.less(start, end_ns / 1e9), pc.greater(end, start_ns / 1e9)))
    nodes = Table(directory, "job_nodes", site=site).read(_NODES, first_day=first)
    nodes = nodes.filter(pc.is_in(nodes["job_key"], jobs["job_key"].combine_chunks()))
    return _resolved(jobs, last_nodes(nodes, jobs), nodes, end_ns)


def _resolved(jobs: pa.Table, nodes: pa.Table, every: pa.Table, end_ns: int) -> JobsOfTime:
    rows = sorted(jobs.to_pylist(), key=lambda row: str(row["job_key"]))
    keys = [row["job_key"] for row in rows]
    number = {key: at for at, key in enumerate(keys)}
    ends = {row["job_key"]: row["end"] for row in rows}

    def occupations(rows: pa.Table) -> list[Occupation]:
        held = set()
        for row in rows.to_pylist():
            key, until = row["job_key"], row["end"] if row["end"] is not None else ends[row["job_key"]]
            last = end_ns if until is None else round(until * 1e9)
            held.add(Occupation(number[key], row["node"], round(row["start"] * 1e9), last))
        ordered = sorted(held, key=attrgetter("job", "node", "start_ns", "end_ns"))
        return [occupation for occupation in ordered if occupation.end_ns > occupation.start_ns]

    now = occupations(nodes)
    held: dict[str, list[tuple[str, int, int]]] = {key: [] for key in keys}
    for occupation in now:
        held[keys[occupation.job]].append((occupation.node, occupation.start_ns, occupation.end_ns))
    runs: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for row in rows:
        if row["start"] is not None:
            end = row["end"] if row["end"] is not None else float("inf")
            runs.setdefault((row["cluster"], row["raw_id"]), []).append((row["start"], end))
    joined = {}
    for row in rows:
        if row["start"] is None or row["end"] is None or row["end"] < row["start"]:
            continue
        start_ns, key = round(row["start"] * 1e9), row["job_key"]
        of_id = runs[row["cluster"], row["raw_id"]]
        later = [round(start * 1e9) for start, _ in of_id if start > row["start"]]
        before = [round(end * 1e9) for start, end in of_id if start < row["start"] and end <= row["start"]]
        joined[key] = JoinedJob(
            key,
            row["raw_id"],
            start_ns,
            max(round(row["end"] * 1e9), start_ns + 1),
            tuple(held[key]),
            row["cpus"],
            min(later, default=2**63 - 1),
            max(before, default=0),
        )
    return JobsOfTime(joined, keys, now, occupations(every))
