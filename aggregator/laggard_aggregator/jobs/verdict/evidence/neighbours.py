"""Loads that jobs put on components that they share, during a job's phases and those of its earlier runs.

A component is shared where several jobs use it: an OST or MDT, a forwarder, a volume, or a mount of one node.
A job's load on it is the job's rate at that time, times the share of its volume that the component carried.
Loads are bytes, requests, metadata operations, and bytes that are written to files of all processes (N-1). A
load slows nobody down on a component whose latency is as usual.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from laggard_aggregator.jobs.access.queries import JobQueries, rounded
from laggard_aggregator.jobs.access.results import JobResults
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.index.reader import Row
from laggard_aggregator.jobs.join.volumes import CLIENT, FORWARDER, METADATA, SERVER, targets
from laggard_aggregator.jobs.verdict.analysis.causes import Neighbour
from laggard_aggregator.jobs.verdict.evidence.minute_sums import Times, hull
from laggard_aggregator.jobs.verdict.evidence.path_parts import (
    BYTES,
    MDT,
    MOVED,
    OPERATIONS,
    OST,
    REQUESTS,
    PathPart,
    RunPath,
    target_shares,
)

MOST_RUNS: Final = 10
"""Earlier runs whose loads are the history: more hardly sharpen it."""
ROUNDED_SECONDS: Final = 600
"""Times of a neighbour that may not be seen are multiples of this."""
SHARED_BYTES: Final = "N-1 bytes"
_WRITTEN: Final = "written"
_LAYERS: Final = (METADATA, SERVER, FORWARDER, CLIENT)
_SERVERS: Final = (SERVER, FORWARDER)
_LEAST_PART: Final = 0.5
"""Of the rise of a load, which the heaviest job must have to be named for it."""
_MIB: Final = 2.0**20
_LEAST_LOADS: Final = {BYTES: _MIB, REQUESTS: 50.0, OPERATIONS: 50.0, SHARED_BYTES: _MIB}
"""Smaller loads, a second, slow nobody down on a shared component."""
_WORDS: Final = {
    BYTES: "MiB a second",
    REQUESTS: "requests a second",
    OPERATIONS: "metadata operations a second",
    SHARED_BYTES: "MiB a second into one file of all its processes",
}
_MOST_TRACES: Final = 16
"""Jobs whose traces are read for one verdict."""

_INNER: Final = {MDT: METADATA, OST: SERVER}

Place = tuple[str, str]
"""A shared component, and the unit of its load a second."""
Loads = Mapping[Place, float]


@dataclass(frozen=True, slots=True)
class NeighbourEvidence:
    """`evidence`: the load of all other jobs on a component; `row`: the job that has most of it, `load`.

    `times`: in which it ran beside the phases. The row is not to be shown: `described` hides it.
    """

    evidence: Neighbour
    row: Row
    load: float
    unit: str
    times: Times


@dataclass(frozen=True, slots=True)
class PathState:
    """The judged job's path, components on it whose latency is known, and the directions that are slow.

    `forwarders`: short names of all of the site.
    """

    run: RunPath
    parts: Mapping[str, PathPart]
    directions: Collection[str]
    forwarders: frozenset[str] = frozenset()

    def slowdown(self, place: Place) -> float:
        """Slowdown of a component that a load may explain, NaN if it is unknown; 1 where it cannot."""
        part = self.parts.get(place[0])
        if part is None:
            return np.nan
        if place[1] in part.innocent_loads:
            return 1.0
        own = ("metadata",) if part.kind == MDT else self.directions
        known = [part.slowdowns[each] for each in own if each in part.slowdowns]
        return max(known, default=np.nan)


class NeighbourLoads:
    """Compares loads of neighbours in the archive in `directory`; `queries` decides who may ask for a job.

    `served_by`: the forwarder of each node that has one. `shared_writes`: share of a job's written bytes that
    went N-1, 0 without traces.
    """

    def __init__(
        self,
        directory: Path,
        queries: JobQueries,
        results: JobResults,
        served_by: Mapping[str, str],
        shared_writes: Callable[[VisibleJob], float],
    ) -> None:
        self._directory = directory
        self._queries = queries
        self._results = results
        self._served_by = served_by
        self._shared_writes = shared_writes
        self._shares: dict[str, float] = {}

    def evidence(
        self,
        job: VisibleJob,
        spans: Sequence[Times],
        factor: float,
        earlier: Sequence[tuple[VisibleJob, Sequence[Times]]],
        path: PathState,
    ) -> list[NeighbourEvidence]:
        """Evidence for `ranked_causes`, of each component of `job`; `earlier`: runs and their spans.

        Raises ArchiveError.
        """
        self._shares = {}
        beside = self._beside(job, spans)
        others = self._loads(job, [job, *beside], spans)
        mine = others.pop(job.key)
        used = {component for (component, _), load in mine.items() if load > 0}
        used -= {target.rpartition("-")[0] for target in (*used, *path.parts) if targets(target)}
        places = sorted({place for loads in others.values() for place in loads if place[0] in used})
        shared = [place for place in places if not path.slowdown(place) < MOVED]
        if not shared:
            return []
        before = [self._sums(job, run["job_key"], at) for run, at in earlier[-MOST_RUNS:]]
        rows = {row["job_key"]: row for row in beside}
        start, end = hull(spans)
        found = []
        for place in shared:
            total = sum(of.get(place, 0.0) for of in others.values())
            key = max(others, key=lambda each: (others[each].get(place, 0.0), each))
            load, row = others[key].get(place, 0.0), rows[key]
            history = np.array([sums.get(place, 0.0) for sums in before])
            usual = float(np.median(history)) if history.size else 0.0
            if load < max(_LEAST_LOADS[place[1]], _LEAST_PART * (total - usual)):
                continue
            evidence = Neighbour(
                key,
                place[0],
                place[1],
                total,
                mine.get(place, 0.0),
                history,
                _capacity(total, mine.get(place, 0.0), usual, factor),
                path.slowdown(place),
            )
            times = max(row["start"], start), min(row["end"], end)
            found.append(NeighbourEvidence(evidence, row, load, place[1], times))
        return found

    def _sums(self, job: VisibleJob, run: str, spans: Sequence[Times]) -> Loads:
        """Load of all others on the components of `job`, during the phases of an earlier run."""
        sums: dict[Place, float] = {}
        for loads in self._loads(job, self._beside(job, spans, run), spans).values():
            for place, load in loads.items():
                sums[place] = sums.get(place, 0.0) + load
        return sums

    def _beside(self, job: VisibleJob, spans: Sequence[Times], run: str = "") -> list[Row]:
        """Jobs on the job's components at that time, but the run that the time is of."""
        found = self._queries.sharing(job, *hull(spans))
        return [row for row in found if row["job_key"] != run]

    def _loads(
        self, judged: VisibleJob, jobs: Sequence[Mapping[str, Any]], spans: Sequence[Times]
    ) -> dict[str, Loads]:
        """Mean loads during `spans` by job."""
        components = self._results.of_jobs("job_components", jobs)
        series = self._results.of_jobs("job_series", jobs)
        none: list[Row] = []
        found: dict[str, Loads] = {}
        forwarders = sorted(set(self._served_by.values()))
        shares = target_shares(self._directory, forwarders, spans) if forwarders and jobs else {}
        for row in jobs:
            key = row["job_key"]
            own = components.get(key, none)
            loads = _loads_of(
                row, own, series.get(key, none), spans, served_by=self._served_by, shares=shares
            )
            written = {place[0]: load for place, load in loads.items() if place[1] == _WRITTEN}
            if key != judged.key and max(written.values(), default=0.0) >= _LEAST_LOADS[SHARED_BYTES]:
                share = self._share(VisibleJob(dict(row), judged.principal))
                loads |= {(name, SHARED_BYTES): share * load for name, load in written.items() if share}
            found[key] = {place: load for place, load in loads.items() if place[1] != _WRITTEN}
        return found

    def _share(self, job: VisibleJob) -> float:
        if job.key not in self._shares and len(self._shares) < _MOST_TRACES:
            self._shares[job.key] = self._shared_writes(job)
        return self._shares.get(job.key, 0.0)


@dataclass(frozen=True, slots=True)
class NeighbourWords:
    """A neighbour in words: `name` and `text` for everybody, `named` for those who may see the job `key`."""

    name: str
    text: str
    key: str
    named: str


def described(found: NeighbourEvidence) -> NeighbourWords:
    """A neighbour in words; for everybody without identity and with rounded times."""
    row, usual = found.row, float(np.median(found.evidence.history)) if found.evidence.history.size else 0.0
    unit, scale = _WORDS[found.unit], _MIB if found.unit in (BYTES, SHARED_BYTES) else 1.0
    load = rounded(found.load / scale)
    name = f"a job with {load} {unit}"
    rise = f"{rounded(found.evidence.load / usual)} times the usual load" if usual else "usually without load"
    where, rough = found.evidence.component, tuple(_tens(at) for at in found.times)
    slower = found.evidence.slowdown
    so = f"{where} was {slower:.1f} times slower than usual: " if np.isfinite(slower) else ""
    text = f"{so}{name} ran on {where}, {rise}, {_span(*rough)} (times rounded to 10 minutes)"
    who = f"job {row['job']} of {row['user']} ran with {load} {unit}"
    return NeighbourWords(name, text, row["job_key"], f"{so}{who} on {where}, {rise}, {_span(*found.times)}")


def _span(start: float, end: float) -> str:
    begun, until = _moment(start), _moment(end)
    return f"{begun} to {until[11:] if until[:10] == begun[:10] else until} UTC"


def _loads_of(
    job: Mapping[str, Any],
    components: Sequence[Row],
    series: Sequence[Row],
    spans: Sequence[Times],
    *,
    served_by: Mapping[str, str],
    shares: Mapping[str, Mapping[str, Mapping[str, float]]],
) -> dict[Place, float]:
    """Mean loads of one job during `spans`; a component that two layers saw counts in the innermost.

    `shares` of targets, by forwarder and kind: of a job that no server names, its targets have them.
    Work of several jobs together on a server or a forwarder is the load of none. A forwarder has the load of
    the job's nodes behind it.
    """
    found: dict[Place, float] = {}
    seconds = sum(end - start for start, end in spans)
    clients = {served_by.get(row["node"]) for row in components if row["layer"] == CLIENT}
    told = {row["layer"] for row in components}
    for layer in _LAYERS:
        carried: dict[Place, float] = {}
        for row in components:
            is_told = layer == FORWARDER and row["node"] in clients
            if row["layer"] == layer and not is_told and not (layer in _SERVERS and row["shared"]):
                for unit, amount in _amounts(row):
                    for name in _shared(row):
                        carried[name, unit] = carried.get((name, unit), 0.0) + amount
                    forwarder = served_by.get(row["node"]) if layer == CLIENT else None
                    if forwarder is not None:
                        carried[forwarder, unit] = carried.get((forwarder, unit), 0.0) + amount
                        kind = MDT if unit == OPERATIONS else OST
                        of_kind = shares[forwarder][kind] if _INNER[kind] not in told else {}
                        for target, share in of_kind.items():
                            carried[target, unit] = carried.get((target, unit), 0.0) + amount * share
        own = next((row for row in series if row["layer"] == layer and row["node"] is None), None)
        for place, amount in carried.items():
            share = amount * _part_of_time(job, own, place[1], spans)
            found.setdefault(place, share / seconds if seconds else 0.0)
    return found


def _shared(row: Row) -> Iterable[str]:
    """Components that other jobs may use too: the targets of a name, a forwarder, a volume or an export, or
    the mount of a node."""
    if row["layer"] == FORWARDER:
        return (row["node"],)
    mount = f"{row['node']}/{row['component']}"
    by_all = (row["component"],) if row["layer"] == CLIENT else ()
    return sorted(targets(row["component"])) or (mount, *by_all)


def _amounts(row: Row) -> list[tuple[str, float]]:
    """Amounts of a row of `job_components` by unit."""
    count, moved = row["operations"] or 0.0, row["bytes"] or 0.0
    if row["direction"] == "metadata":
        return [(OPERATIONS, count)]
    written = [(_WRITTEN, moved)] if row["direction"] == "write" else []
    return [(BYTES, moved), *([(REQUESTS, count)] if count else []), *written]


def _part_of_time(job: Mapping[str, Any], series: Row | None, unit: str, spans: Sequence[Times]) -> float:
    """Share of the job's amount that fell into `spans`; evenly spread over its time without a series."""
    edges = np.array([job["start"], max(job["end"], job["start"] + 1.0)])
    sums = np.array([0.0, 1.0])
    names = ("metadata_operations",) if unit == OPERATIONS else ("read_bytes", "written_bytes")
    rows = [series[name] for name in names if series is not None and series[name] is not None]
    if series is not None and rows:
        values = np.nansum(np.stack(rows), axis=0)
        if values.sum() > 0:
            edges = series["start"] + series["resolution_seconds"] * np.arange(values.size + 1)
            sums = np.concatenate(([0.0], np.cumsum(values))) / values.sum()
    at = np.interp(np.array(spans), edges, sums)
    return float((at[:, 1] - at[:, 0]).sum())


def _capacity(total: float, own: float, usual: float, factor: float) -> float:
    """Unknown capacity of a component: the one by which the load explains the phase, if any does."""
    bound = total + own
    return bound / factor if bound > factor * (own + usual) else np.nan


def _tens(at: float) -> float:
    return round(at / ROUNDED_SECONDS) * float(ROUNDED_SECONDS)


def _moment(at: Any) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
