"""Loads that jobs put on components that they share, during a job's phases and those of its earlier runs.

A component is shared where several jobs use it: an OST or MDT, a forwarder, a volume, or a mount of one node.
A job's load on it is the job's rate at that time, times the share of its volume that the component carried.
Loads are bytes, requests, metadata operations, and bytes that are written to files of all processes (N-1). A
load slows nobody down on a component whose latency is as usual, or if earlier runs bore as much of it.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.jobs.access.queries import JobQueries, rounded
from laggard_aggregator.jobs.access.results import JobResults
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.index.reader import Row
from laggard_aggregator.jobs.join.client_traces import COMPONENT as TRACED
from laggard_aggregator.jobs.join.volumes import CLIENT, FORWARDER, METADATA, SERVER, is_ost, targets
from laggard_aggregator.jobs.records.hostlist import short_name
from laggard_aggregator.jobs.verdict.analysis.cause_ranking import Neighbour
from laggard_aggregator.jobs.verdict.evidence.minute_sums import Times, hull
from laggard_aggregator.jobs.verdict.evidence.path_parts import (
    BYTES,
    MOVED,
    OPERATIONS,
    REQUESTS,
    SLOW,
    PathPart,
    RunPath,
)
from laggard_aggregator.jobs.verdict.evidence.run_paths import forwarders_of
from laggard_aggregator.jobs.verdict.evidence.target_shares import (
    MDT,
    OST,
    JobsBehind,
    TargetShares,
    WorkDone,
    target_shares,
    work_by_field,
    work_done,
)

MOST_RUNS: Final = 10
"""Earlier runs whose loads are the history: more hardly sharpen it."""
ROUNDED_SECONDS: Final = 600
"""Times of a neighbour that may not be seen are multiples of this."""
SHARED_BYTES: Final = "N-1 bytes"
_WAITING, _METADATA_WAITING = "waiting", "waiting for metadata"
"""Requests under way, of data and of metadata: seconds that they took, a second (Little's law)."""
_WAITS: Final = (_WAITING, _METADATA_WAITING)
_WRITTEN: Final = "written"
_LAYERS: Final = (METADATA, SERVER, FORWARDER, CLIENT)
_SERVERS: Final = (SERVER, FORWARDER)
_CLIENTS: Final = (CLIENT, FORWARDER)
_LEAST_PART: Final = 0.5
"""Share of a load's rise that the heaviest job must have to be named for it, and of the requests under way on
a component that N-1 writes, or of those through a forwarder that metadata operations, must have to slow down
the rest."""
_MIB: Final = 2.0**20
_MB: Final = 1e6
_LEAST_LOADS: Final = {BYTES: _MIB, REQUESTS: 50.0, OPERATIONS: 50.0, SHARED_BYTES: _MIB}
"""Smaller loads, a second, slow nobody down on a shared component."""
_WORDS: Final = {
    BYTES: "MB a second",
    REQUESTS: "requests a second",
    OPERATIONS: "metadata operations a second",
    SHARED_BYTES: "MB a second into one file of all its processes",
}
_MOST_TRACES: Final = 16
"""Jobs whose traces are read for one verdict."""

_MOST_CLIENTS: Final = 4
"""Nodes of a job beside the judged one that tell which targets it uses; its others use the same."""
_INNER: Final = {MDT: METADATA, OST: SERVER}
_AS_MUCH: Final = 0.8
"""Share of a load from which a peer, or an earlier run, counts as having as much."""
_BORNE_RUNS: Final = 2
"""Earlier runs that had as much of a load and were not slow from which it explains nothing: one is chance."""

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

    `forwarders`: short names of all of the site. `past`: slowdown (R,) of components in R earlier runs.
    """

    run: RunPath
    parts: Mapping[str, PathPart]
    directions: Collection[str]
    forwarders: frozenset[str] = frozenset()
    past: Mapping[str, FloatArray] = field(default_factory=dict)

    def was_slow(self, name: str, run: int) -> bool:
        """Whether a component was slow in an earlier run, as far as that is known."""
        return name in self.past and bool(self.past[name][run] >= SLOW)

    def slowdown(self, place: Place) -> float:
        """Slowdown of a component that a load may explain, NaN if it is unknown; 1 where it cannot.

        Reads and writes do not wait for MDTs, metadata operations not for OSTs, and nothing for a component
        without a latency whose peers have one.
        """
        name, unit = place
        kind = self.kind(name)
        is_waited_for = any((direction == "metadata") == (kind == MDT) for direction in self.directions)
        if kind in _INNER and not is_waited_for:
            return 1.0
        part = self.parts.get(name)
        if part is None:
            return 1.0 if any(other.kind == kind for other in self.parts.values()) else np.nan
        return 1.0 if unit in part.innocent_loads else part.worst[1]

    def clearing(self, name: str, loads: FloatArray, now: float) -> FloatArray:
        """Those of the `loads` (R,) in earlier runs that may clear the load `now` on a component.

        As much of it, at which the component was slow as well, clears nobody. All, where the others are few.
        """
        part = self.parts.get(name)
        if part is None or len(part.earlier) != len(loads):
            return loads
        clears = ~((np.array(part.earlier) >= SLOW) & (loads >= _AS_MUCH * now))
        return loads[clears] if 2 * clears.sum() > len(loads) else loads

    def by_chance(self, name: str) -> float:
        """Chance of the slowdown of a component, 1 if it is unknown."""
        part = self.parts.get(name)
        return 1.0 if part is None else part.by_chance

    def kind(self, name: str) -> str | None:
        """OST, MDT, forwarder, or None of a component of another kind."""
        if targets(name):
            return OST if is_ost(name) else MDT
        return FORWARDER if short_name(name) in self.forwarders else None


@dataclass(frozen=True, slots=True)
class RunLoads:
    """Mean loads in a run's phases: `own`, and those of `others`, by job, with their `rows`.

    `components`: the run's rows of `job_components`. `shares`: of targets in the run's own work, where no
    server tells. `has_metadata`: whether the run's clients tell when it did metadata operations, or that it
    did none.
    """

    spans: Sequence[Times]
    own: Loads
    others: Mapping[str, Loads]
    rows: Mapping[str, Row]
    components: Sequence[Row]
    shares: TargetShares
    has_metadata: bool

    @property
    def sums(self) -> Loads:
        """Loads of all others together."""
        sums: dict[Place, float] = defaultdict(float)
        for loads in self.others.values():
            for place, load in loads.items():
                sums[place] += load
        return sums


@dataclass(frozen=True, slots=True)
class _Beside:
    """A run and its phases, `rows` of the jobs beside it by key, and results of these and of other jobs.

    `series`: rows of `job_series` that are sums over a job's nodes.
    """

    spans: Sequence[Times]
    run: Mapping[str, Any]
    rows: Mapping[str, Row]
    components: Mapping[str, list[Row]]
    series: Mapping[str, list[Row]]

    @property
    def jobs(self) -> list[Mapping[str, Any]]:
        """The run and the jobs beside it."""
        return [self.run, *self.rows.values()]


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

    def of_runs(
        self, job: VisibleJob, runs: Sequence[tuple[Mapping[str, Any], Sequence[Times]]]
    ) -> list[RunLoads]:
        """Loads of runs of a job in their spans, on components of `job`. Raises ArchiveError."""
        self._shares = {}
        beside = self._beside(job, runs)
        shares = target_shares(self._directory, [self._behind(run) for run in beside])
        return [self._loads(job, run, own) for run, own in zip(beside, shares, strict=True)]

    def evidence(
        self, now: RunLoads, earlier: Sequence[RunLoads], factor: float, path: PathState
    ) -> list[NeighbourEvidence]:
        """Evidence for `ranked_causes`, of each component of a run that is `factor` times slower."""
        used = {component for (component, _), load in now.own.items() if load > 0}
        used -= {target.rpartition("-")[0] for target in (*used, *path.parts) if targets(target)}
        sums = now.sums
        shared = [
            place
            for place in sorted(sums)
            if place[1] not in _WAITS and place[0] in used and not path.slowdown(place) < MOVED
        ]
        before = [run.sums for run in earlier] if shared else []
        start, end = hull(now.spans)
        neighbours = []
        for place in shared:
            total = sums[place]
            key = max(now.others, key=lambda job: (now.others[job].get(place, 0.0), job))
            load, row = now.others[key].get(place, 0.0), now.rows[key]
            history = np.array([run_loads.get(place, 0.0) for run_loads in before])
            usual = float(np.median(history)) if history.size else 0.0
            if load < max(_LEAST_LOADS[place[1]], _LEAST_PART * (total - usual)) or _is_spared(
                place, now.others[key], path
            ):
                continue
            own = now.own.get(place, 0.0)
            if _AS_MUCH * (total + own) <= _borne(place, earlier, before, path):
                continue
            is_forwarder = path.kind(place[0]) == FORWARDER
            if place[1] == SHARED_BYTES and not _has_most_work(
                place[0], key, now, sums, is_forwarder=is_forwarder
            ):
                continue
            if place[1] == OPERATIONS and is_forwarder:
                work = (
                    total + own + sums.get((place[0], REQUESTS), 0.0) + now.own.get((place[0], REQUESTS), 0.0)
                )
                part = _part_under_way(place[0], key, now, _METADATA_WAITING)
                is_small = load < _LEAST_PART * work if part is None else part < _LEAST_PART
                if is_small or work < _AS_MUCH * _usual_work(earlier, before, path):
                    continue
            evidence = Neighbour(
                key,
                place[0],
                place[1],
                total,
                own,
                path.clearing(place[0], history, total),
                _capacity(total, own, usual, factor),
                path.slowdown(place),
                path.by_chance(place[0]),
            )
            times = max(row["start"], start), min(row["end"], end)
            neighbours.append(NeighbourEvidence(evidence, row, load, place[1], times))
        return neighbours

    def _beside(
        self, judged: VisibleJob, runs: Sequence[tuple[Mapping[str, Any], Sequence[Times]]]
    ) -> list[_Beside]:
        """Runs and the jobs beside them with their results, each day's read once."""
        rows: list[dict[str, Row]] = []
        for run, spans in runs:
            sharing = self._queries.sharing(judged, *hull(spans))
            rows.append({row["job_key"]: row for row in sharing if row["job_key"] != run["job_key"]})
        every: dict[str, Mapping[str, Any]] = {run["job_key"]: run for run, _ in runs}
        for others in rows:
            every |= others
        components = self._results.components_of(every.values())
        series = self._results.whole_series_of(every.values())
        return [
            _Beside(spans, run, others, components, series)
            for (run, spans), others in zip(runs, rows, strict=True)
        ]

    def _loads(self, judged: VisibleJob, beside: _Beside, shares: Mapping[str, TargetShares]) -> RunLoads:
        """Mean loads during the run; `shares` of targets by job."""
        by_job: dict[str, Loads] = {}
        for row in beside.jobs:
            key = row["job_key"]
            loads = _loads_of(
                row,
                beside.components.get(key, []),
                beside.series.get(key, []),
                beside.spans,
                served_by=self._served_by,
                shares=shares.get(key, {}),
            )
            written = {place[0]: load for place, load in loads.items() if place[1] == _WRITTEN}
            if row is not beside.run and max(written.values(), default=0.0) >= _LEAST_LOADS[SHARED_BYTES]:
                share = self._share(VisibleJob(dict(row), judged.principal))
                loads |= {(name, SHARED_BYTES): share * load for name, load in written.items() if share}
            by_job[key] = {place: load for place, load in loads.items() if place[1] != _WRITTEN}
        key = beside.run["job_key"]
        own = by_job.pop(key)
        told = [row for row in beside.series.get(key, ()) if row["node"] is None and row["layer"] in _CLIENTS]
        counts = [row["metadata_operations"] for row in told if row["metadata_operations"] is not None]
        components = beside.components.get(key, [])
        did_some = any(
            row["direction"] == "metadata" and row["operations"] and not row["shared"] for row in components
        )
        has_metadata = any(np.nansum(column) > 0 for column in counts) or (bool(counts) and not did_some)
        return RunLoads(beside.spans, own, by_job, beside.rows, components, shares.get(key, {}), has_metadata)

    def _behind(self, beside: _Beside) -> JobsBehind:
        """Jobs behind forwarders, the run behind clients of its own, the others behind a few of theirs; none
        where servers tell of all."""
        behind: dict[str, dict[str, Mapping[str, WorkDone]]] = defaultdict(dict)
        for job in beside.jobs:
            key = job["job_key"]
            rows = beside.components.get(key, ())
            clients = set(forwarders_of(rows, self._served_by))
            of_own = sorted({row["node"] for row in rows if row["layer"] == CLIENT})
            if job is beside.run:
                clients |= set(of_own)
            else:
                clients |= set([node for node in of_own if node not in self._served_by][:_MOST_CLIENTS])
            whole = _whole(beside.series.get(key, ()), CLIENT)
            own = work_by_field(job, whole) if clients else {}
            for client in clients:
                behind[client][key] = own
        told = [{row["layer"] for row in beside.components.get(job["job_key"], ())} for job in beside.jobs]
        if all(layers.issuperset(_INNER.values()) for layers in told):
            behind.clear()
        return JobsBehind(hull(beside.spans), behind)

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


def described(neighbour: NeighbourEvidence) -> NeighbourWords:
    """A neighbour in words; for everybody without identity and with rounded times."""
    row, evidence = neighbour.row, neighbour.evidence
    usual = float(np.median(evidence.history)) if evidence.history.size else 0.0
    unit, scale = _WORDS[neighbour.unit], _MB if neighbour.unit in (BYTES, SHARED_BYTES) else 1.0
    load = rounded(neighbour.load / scale)
    name = f"a job with {load} {unit}"
    grown = f"{rounded(evidence.load / usual)} times the usual load" if usual else ""
    rise = grown or "which usually has no load"
    where, rough = evidence.component, tuple(_tens(at) for at in neighbour.times)
    slower = evidence.slowdown
    so = f"{where} was {slower:.1f} times slower than usual: " if np.isfinite(slower) else ""
    text = f"{so}{name} ran on {where}, {rise}, {_span(*rough)} (times rounded to 10 minutes)"
    who = f"job {row['job']} of {row['user']} ran with {load} {unit}"
    named = f"{so}{who} on {where}, {rise}, {_span(*neighbour.times)}"
    return NeighbourWords(name, text, row["job_key"], named)


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
    shares: TargetShares,
) -> dict[Place, float]:
    """Mean loads of one job during `spans`; a component that two layers saw counts in the innermost.

    `shares` of targets: of a job that no server names. Work of several jobs together on a server or a
    forwarder is the load of none. A forwarder has the load of the job's nodes behind it.
    """
    loads: dict[Place, float] = {}
    seconds = sum(end - start for start, end in spans)
    clients = {served_by.get(row["node"]) for row in components if row["layer"] == CLIENT}
    told = {row["layer"] for row in components}
    for layer in _LAYERS:
        carried: dict[Place, float] = defaultdict(float)
        for row in components:
            is_told = layer == FORWARDER and row["node"] in clients
            if row["layer"] == layer and not is_told and not (layer in _SERVERS and row["shared"]):
                for unit, amount in _amounts(row):
                    for name in shared_components(row):
                        carried[name, unit] += amount
                    if layer != CLIENT:
                        continue
                    forwarder = served_by.get(row["node"])
                    if forwarder is not None:
                        carried[forwarder, unit] += amount
                    kind = _waited_for(unit)
                    if _INNER[kind] not in told:
                        for target, share in shares.get(kind, {}).items():
                            carried[target, unit] += amount * share
        own = _whole(series, layer)
        for place, amount in carried.items():
            share = amount * _part_of_time(work_done(job, own, _waited_for(place[1])), spans)
            loads.setdefault(place, share / seconds if seconds else 0.0)
    return loads


def _waited_for(unit: str) -> str:
    """The kind of target that a load of a unit waits for."""
    return MDT if unit in (OPERATIONS, _METADATA_WAITING) else OST


def _whole(series: Sequence[Row], layer: str) -> Row | None:
    """The series of a whole job that a layer has, if any."""
    return next((row for row in series if row["layer"] == layer), None)


def _is_spared(place: Place, loads: Loads, path: PathState) -> bool:
    """Whether the same job had as much load on a peer of a component that was not slower."""
    part = path.parts.get(place[0])
    peers = part.unmoved if part is not None else ()
    return any(loads.get((peer, place[1]), 0.0) >= _AS_MUCH * loads[place] for peer in peers)


def _has_most_work(name: str, key: str, run: RunLoads, sums: Loads, *, is_forwarder: bool) -> bool:
    """Whether a job has half of the work on a component, and no other a larger part.

    Half of the requests under way on a forwarder, which a write holds while it waits for the lock of its
    file; half of the bytes or requests on others, and where not all jobs' clients time their requests.
    `sums`: those of `run`.
    """
    held = {job: _part_under_way(name, job, run, _WAITING) if is_forwarder else None for job in run.others}
    parts = {job: part or 0.0 for job, part in held.items()}
    for unit in (BYTES, REQUESTS) if held[key] is None else ():
        of_all = sums.get((name, unit), 0.0) + run.own.get((name, unit), 0.0)
        for job, loads in run.others.items():
            parts[job] = max(parts[job], loads.get((name, unit), 0.0) / of_all if of_all else 0.0)
    return parts[key] >= max(_LEAST_PART, *parts.values())


def _part_under_way(name: str, key: str, run: RunLoads, unit: str) -> float | None:
    """Part of a job's requests of a unit of _WAITS in all that are under way on a component.

    None where not all jobs' clients time their requests.
    """
    jobs = (run.own, *run.others.values())
    for done, waits in ((BYTES, _WAITING), (OPERATIONS, _METADATA_WAITING)):
        if any(loads.get((name, done), 0.0) > 0 >= loads.get((name, waits), 0.0) for loads in jobs):
            return None
    total = sum(loads.get((name, waits), 0.0) for loads in jobs for waits in _WAITS)
    return run.others[key].get((name, unit), 0.0) / total if total else None


def _borne(place: Place, runs: Sequence[RunLoads], others: Sequence[Loads], path: PathState) -> float:
    """Load that components of the same kind bore on the paths of two earlier runs at least, 0 without two.

    It is the largest of each run's own path, whatever component had it that was not slow then: those runs
    were not slow. `others`: loads of all other jobs.
    """
    kind, unit = path.kind(place[0]), place[1]
    most = [
        max(
            (
                load + beside.get(own, 0.0)
                for own, load in run.own.items()
                if own[1] == unit and load > 0 and path.kind(own[0]) == kind and not path.was_slow(own[0], at)
            ),
            default=0.0,
        )
        for at, (run, beside) in enumerate(zip(runs, others, strict=True))
    ]
    return sorted(most)[-_BORNE_RUNS] if kind is not None and len(most) >= _BORNE_RUNS else 0.0


def _usual_work(runs: Sequence[RunLoads], others: Sequence[Loads], path: PathState) -> float:
    """Median over earlier runs of the most requests and metadata operations on a forwarder of the run."""
    most = []
    for run, beside in zip(runs, others, strict=True):
        work: dict[str, float] = defaultdict(float)
        for name, unit in run.own:
            if unit in (REQUESTS, OPERATIONS) and path.kind(name) == FORWARDER:
                work[name] += run.own[name, unit] + beside.get((name, unit), 0.0)
        most.append(max(work.values(), default=0.0))
    return float(np.median(most)) if most else 0.0


def shared_components(row: Row) -> Iterable[str]:
    """Components that other jobs may use too: the targets of a name, a forwarder, a volume or an export, or
    the mount of a node. Traces name no file system, so jobs with traces share nothing by these alone."""
    if row["layer"] == FORWARDER:
        return (row["node"],)
    mount = f"{row['node']}/{row['component']}"
    by_all = (row["component"],) if row["layer"] == CLIENT and row["component"] != TRACED else ()
    return sorted(targets(row["component"])) or (mount, *by_all)


def _amounts(row: Row) -> list[tuple[str, float]]:
    """Amounts of a row of `job_components` by unit."""
    count, moved = row["operations"] or 0.0, row["bytes"] or 0.0
    waited = row["latency_seconds"] if row["layer"] == CLIENT else None
    is_metadata = row["direction"] == "metadata"
    timed = [(_METADATA_WAITING if is_metadata else _WAITING, waited)] if waited else []
    if is_metadata:
        return [(OPERATIONS, count), *timed]
    written = [(_WRITTEN, moved)] if row["direction"] == "write" else []
    return [(BYTES, moved), *([(REQUESTS, count)] if count else []), *timed, *written]


def _part_of_time(done: WorkDone, spans: Sequence[Times]) -> float:
    """Share of a job's work that fell into `spans`."""
    at = done.at(np.array(spans))
    return float((at[:, 1] - at[:, 0]).sum())


def _capacity(total: float, own: float, usual: float, factor: float) -> float:
    """Unknown capacity of a component: the one by which the load explains the phase, if any does."""
    bound = total + own
    return bound / factor if bound > factor * (own + usual) else np.nan


def _tens(at: float) -> float:
    return round(at / ROUNDED_SECONDS) * float(ROUNDED_SECONDS)


def _moment(at: Any) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
