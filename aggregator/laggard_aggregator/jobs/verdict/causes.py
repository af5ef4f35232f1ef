"""Causes of a job's slowness, from the archive.

They are components slow on its path, by alarms, by their latencies or within the job; loads of neighbours;
and its own change. Each becomes evidence for `ranked_causes`; findings say it in words, as far as the asker
may read them. A component that is slow under a load is not ill: the load is the cause.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.results import JobResults
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.index.reader import Row
from laggard_aggregator.jobs.join.path_pass import client_node
from laggard_aggregator.jobs.join.volumes import FORWARDER, SERVER
from laggard_aggregator.jobs.records.hostlist import short_name
from laggard_aggregator.jobs.traces.io_modes import ModeShares
from laggard_aggregator.jobs.verdict.analysis.advice import KIB
from laggard_aggregator.jobs.verdict.analysis.cause_ranking import (
    Cause,
    Neighbour,
    PathStraggler,
    SlowPhase,
    ranked_causes,
)
from laggard_aggregator.jobs.verdict.analysis.phases import Phase
from laggard_aggregator.jobs.verdict.evidence.alarms import PathAlarm, path_alarms
from laggard_aggregator.jobs.verdict.evidence.component_series import JobPlaces, component_series
from laggard_aggregator.jobs.verdict.evidence.component_times import ComponentTimes, slow_alike, slow_on
from laggard_aggregator.jobs.verdict.evidence.neighbours import (
    MOST_RUNS,
    NeighbourEvidence,
    NeighbourLoads,
    PathState,
    RunLoads,
    described,
)
from laggard_aggregator.jobs.verdict.evidence.outside import OutsideLoad, OutsideLoads
from laggard_aggregator.jobs.verdict.evidence.path_parts import (
    MOVED,
    SLOW,
    PathPart,
    PathParts,
    waits_for_target,
)
from laggard_aggregator.jobs.verdict.evidence.path_shares import carried_shares, names
from laggard_aggregator.jobs.verdict.evidence.requests import (
    MEANS,
    MODES,
    own_numbers,
    requests,
    shared_writes,
)
from laggard_aggregator.jobs.verdict.evidence.run_paths import part_shares, run_path, slow_directions
from laggard_aggregator.jobs.verdict.evidence.slow_nodes import slow_nodes
from laggard_aggregator.jobs.verdict.evidence.slow_parts import SlowPart, slow_parts

_MOST_WITHIN: Final = 3
"""Slow components that are findings of a job that was not slow as a whole."""
_OPERATORS: Final = "The job is not at fault: tell the storage operators"
_DOING: Final = {"read": "reads", "write": "writes", "metadata": "metadata operations"}


@dataclass(frozen=True, slots=True)
class JobFinding:
    """One finding. `cause`: a component, a number of the job's own, or empty; `share`: of its volume.

    `neighbour`: key of a job that is the cause, and `named`: `text` for those who may see that job.
    """

    kind: str
    cause: str
    factor: float
    share: float | None
    text: str
    advice: str
    neighbour: str | None = None
    named: str | None = None


@dataclass(frozen=True, slots=True)
class SlowJob:
    """A job with its I/O phases; `factor`: its duration as a multiple of the expected."""

    job: VisibleJob
    phases: Sequence[Phase]
    factor: float | None

    @property
    def hull(self) -> tuple[float, float]:
        """Start of its first phase and end of its last one."""
        return min(phase.start for phase in self.phases), max(phase.end for phase in self.phases)


@dataclass(frozen=True, slots=True)
class FoundCauses:
    """`ranked`: causes that pass, the likeliest first; `beside`: slow components that explain too little."""

    ranked: list[JobFinding] = field(default_factory=list)
    beside: list[JobFinding] = field(default_factory=list)


class JobCauses:
    """Finds causes in the archive in `directory`, whose index `queries` asks.

    `served_by`: the forwarder of each node that has one. `modes_of`: I/O modes of a job by its traces.
    """

    def __init__(
        self,
        directory: Path,
        queries: JobQueries,
        results: JobResults,
        served_by: Mapping[str, str],
        modes_of: Callable[[VisibleJob], Mapping[str, ModeShares]],
    ) -> None:
        self._directory = directory
        self._queries = queries
        self._results = results
        self._served_by = served_by
        self._modes_of = modes_of
        self._neighbours = NeighbourLoads(
            directory, queries, results, served_by, lambda job: shared_writes(modes_of(job))
        )
        self._outside = OutsideLoads(directory, queries.had_job)

    def ranked(
        self, asked: SlowJob, earlier: Sequence[tuple[VisibleJob, Sequence[Phase]]], method: str
    ) -> FoundCauses:
        """Causes of a slow job; `method` finds its slow components. Raises ArchiveError."""
        start, end = asked.hull
        phase = SlowPhase(start, end, asked.factor or 1.0)
        recent = earlier[-MOST_RUNS:]
        runs = [(asked.job, asked.phases), *recent]
        now, *then = self._neighbours.of_runs(asked.job, [(job, _spans(own)) for job, own in runs])
        path = self._path([now, *then], [own for _, own in runs])
        components = now.components
        beside = self._neighbours.evidence(now, then, phase.factor, path)
        outside = list(self._outside.evidence(path, now.spans, [run.spans for run in then]))
        loads = [*(load.evidence for load in beside), *(load.evidence for load in outside)]
        asked_by = [requests(run.components) for run in (now, *then)]
        own = list(own_numbers([job for job, _ in runs], asked_by, self._modes_of))
        loaded = _loaded(ranked_causes(phase, [], loads, []), loads)
        is_changed = bool(ranked_causes(phase, [], [], own))
        nodes, cleared = self._slow_nodes(now, then, path)
        ill = {
            part.name: part
            for part in path.parts.values()
            if part.is_slow
            and part.name not in loaded | cleared
            and not (is_changed and _is_common(part, path))
        }
        carried = carried_shares(components)
        alarms = [
            alarm
            for alarm in path_alarms(self._directory, path.run, carried)
            if not _is_explained(alarm.straggler.component, loaded, ill)
        ]
        known = {name for alarm in alarms for name in names(alarm.straggler.component, "")} | loaded
        shares = part_shares(components, self._served_by)
        kinds = Counter(part.kind for part in path.parts.values())
        parts = {name: _slow_part(part, shares.get(name, 1 / kinds[part.kind])) for name, part in ill.items()}
        parts |= {part.component: part for part in nodes}
        within = {
            part.component: part
            for part in self._slow_parts(asked, components, method)
            if part.component not in cleared
        }
        usual = {name for name, part in path.parts.items() if part.worst[1] < MOVED}
        parts |= {name: part for name, part in within.items() if name not in {*parts, *usual}}
        slow = [
            PathStraggler(name, start, end, part.factor, _chance(ill.get(name)), part.carried)
            for name, part in parts.items()
            if name not in known
        ]
        causes = ranked_causes(phase, [*(alarm.straggler for alarm in alarms), *slow], loads, own)
        numbers = {number.name: number.now for number in own}
        findings = _findings(causes, alarms, parts, (beside, outside), numbers)
        named = known | {finding.cause for finding in findings}
        return FoundCauses(findings, [_of_part(part) for name, part in within.items() if name not in named])

    def _path(self, runs: Sequence[RunLoads], phases: Sequence[Sequence[Phase]]) -> PathState:
        """The components on the path of the first of `runs`, with their latencies beside the others'."""
        now, *before = (
            run_path(run.components, own, self._served_by, run.shares)
            for run, own in zip(runs, phases, strict=True)
        )
        forwarders = {*self._served_by.values(), *now.parts[FORWARDER]}
        directions = slow_directions(phases[0], phases[1:])
        if not runs[0].has_metadata:
            directions.append("metadata")
        reader = PathParts(self._directory, frozenset(forwarders), self._served_by)
        path_parts = reader.of(now, before, directions)
        short = frozenset(map(short_name, forwarders))
        return PathState(now, {part.name: part for part in path_parts}, directions, short, reader.past)

    def _slow_nodes(
        self, now: RunLoads, then: Sequence[RunLoads], path: PathState
    ) -> tuple[list[SlowPart], set[str]]:
        """Slow nodes of the job, and OSTs that are slow for one of them alone.

        A node that mounts the file system itself tells how slow its OSTs are for it: whether it is these or
        the node, other clients of the OST tell. Where there are none it is either.
        """
        before = [run.components for run in then]
        served = [part for part in path.parts.values() if not part.is_seen]
        reader = PathParts(self._directory, path.forwarders, self._served_by)
        nodes, cleared = [], set()
        for node in slow_nodes(now.components, before, self._served_by, path.directions, served):
            name, is_own = node.component, node.component not in self._served_by
            explaining = [
                part.name
                for part in path.parts.values()
                if part.is_seen and waits_for_target(node.direction, node.factor, [part])
            ]
            views = [
                reader.seen_by_others(part, node.direction, name, path.run) if is_own else np.inf
                for part in explaining
            ]
            if any(view >= MOVED for view in views):
                continue
            cleared |= set(explaining)
            alone = [part for part, view in zip(explaining, views, strict=True) if np.isnan(view)]
            either = f"; or {' and '.join(alone)}, which no other client used meanwhile" if alone else ""
            nodes.append(replace(node, text=f"{node.text}{either}"))
        return nodes, cleared

    def slow_components(self, asked: SlowJob, method: str) -> list[JobFinding]:
        """Components slower than the job's others, by one of METHODS. Raises ArchiveError."""
        components = self._results.components(asked.job)
        return [_of_part(part) for part in self._slow_parts(asked, components, method)]

    def _slow_parts(self, asked: SlowJob, used: Sequence[Row], method: str) -> list[SlowPart]:
        job = asked.job
        places = JobPlaces(
            nodes={row["name"] for row in self._queries.nodes(job)},
            forwarders={row["node"] for row in used if row["layer"] == FORWARDER},
            osts={row["component"] for row in used if row["layer"] == SERVER},
            start=job["start"],
            end=job["end"],
        )
        return [
            part
            for series in component_series(self._directory, places)
            for part in slow_parts(series, method)
        ]


def _is_explained(alarm: str, loaded: Collection[str], ill: Collection[str]) -> bool:
    """Whether an alarm tells of a load, or is a client's view of a part that is known to be slow."""
    own, node = names(alarm, ""), client_node(alarm)
    return not own.isdisjoint(loaded) or (node is not None and not (own | {node}).isdisjoint(ill))


def _loaded(causes: Sequence[Cause], loads: Sequence[Neighbour]) -> set[str]:
    """Components that are slow under loads that are causes: also where the same load is less unusual."""
    whose = {(cause.name, cause.kind) for cause in causes}
    return {load.component for load in loads if (load.job, load.kind) in whose}


def _is_common(part: PathPart, path: PathState) -> bool:
    """Whether the job's others of a kind are as slow, or it has none: its own change may do that."""
    direction, slowdown = part.worst
    others = [
        other.slowdowns[direction]
        for other in path.parts.values()
        if other.kind == part.kind and other.name != part.name and direction in other.slowdowns
    ]
    return not others or slowdown < SLOW * float(np.median(others))


def _chance(part: PathPart | None) -> float:
    """Chance of a slowdown; 0 of a component that the detector found within the job."""
    return 0.0 if part is None else part.by_chance


def _slow_part(part: PathPart, carried: float) -> SlowPart:
    direction, slowdown = part.worst
    text = f"its {_DOING[direction]} took {slowdown:.1f} times as long as usual"
    if np.isfinite(part.beyond_peers):
        text += f", {part.beyond_peers:.1f} times as long as those of other {part.kind}s"
    return SlowPart(part.name, part.kind, slowdown, 0, carried, text)


def _findings(
    causes: Sequence[Cause],
    alarms: Sequence[PathAlarm],
    parts: Mapping[str, SlowPart],
    loads: tuple[Sequence[NeighbourEvidence], Sequence[OutsideLoad]],
    own: Mapping[str, float],
) -> list[JobFinding]:
    """Causes in words, each job, node or component once.

    `loads`: those of jobs and of nodes without one; `own`: the job's own numbers by name.
    """
    by_name = {alarm.straggler.component: alarm for alarm in alarms}
    beside = {(load.unit, load.evidence.job, load.evidence.component): load for load in loads[0]}
    outside = {(load.evidence.kind, load.evidence.job, load.evidence.component): load for load in loads[1]}
    findings: dict[tuple[str, str], JobFinding] = {}
    for cause in causes:
        key = cause.kind, cause.name, cause.component
        if key in beside:
            findings.setdefault(("neighbour", cause.name), _of_neighbour(cause, beside[key]))
        elif key in outside:
            findings.setdefault(("neighbour", cause.name), _of_outside(cause, outside[key]))
        elif cause.component in by_name:
            findings.setdefault((cause.kind, cause.name), _of_alarm(cause, by_name[cause.component]))
        elif cause.component in parts:
            findings[cause.kind, cause.name] = _of_part(parts[cause.component])
        else:
            findings.setdefault((cause.kind, cause.name), _of_change(cause, own[cause.name]))
    return list(findings.values())


def _spans(phases: Sequence[Phase]) -> list[tuple[float, float]]:
    """Times of phases; those of several directions that meet become one."""
    spans: list[tuple[float, float]] = []
    for following in sorted(phases, key=lambda phase: phase.start):
        if spans and following.start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], following.end)
        else:
            spans.append((following.start, following.end))
    return spans


def _of_part(part: SlowPart) -> JobFinding:
    share = f"and it carried {part.carried:.0%} of the bytes"
    text = f"{part.component} was slow in this job: {part.text}, {share}"
    return JobFinding("slow component", part.component, part.factor, part.carried, text, _OPERATORS)


def within(components: Sequence[ComponentTimes]) -> list[JobFinding]:
    """Slow components of a job that was not slow as a whole, or cannot be judged, by its own requests."""
    return [_of_times(some) for some in slow_alike(components)[:_MOST_WITHIN]]


def _of_times(some: Sequence[ComponentTimes]) -> JobFinding:
    worst = max(some, key=lambda component: component.worst[1].factor or 0.0)
    name = worst.name if len(some) == 1 else worst.component
    advice = f"Tell the storage operators that {name} was slow"
    return JobFinding("slow component", name, worst.worst[1].factor or 0.0, None, slow_on(some), advice)


def _of_neighbour(cause: Cause, evidence: NeighbourEvidence) -> JobFinding:
    """A neighbour; its factor has two digits."""
    words, factor = described(evidence), float(f"{cause.factor:.2g}")
    return JobFinding("neighbour", words.name, factor, None, words.text, _OPERATORS, words.key, words.named)


def _of_outside(cause: Cause, load: OutsideLoad) -> JobFinding:
    return JobFinding("neighbour", cause.name, float(f"{cause.factor:.2g}"), None, load.text, _OPERATORS)


def _of_change(cause: Cause, now: float) -> JobFinding:
    if cause.name in MEANS:
        text = f"its {cause.name} of {now / KIB:.3g} KiB was {cause.factor:.1f} times smaller than the usual"
    elif cause.name in MODES:
        text = f"{now:.0%} of its bytes were {cause.name}, {cause.factor:.1f} times the usual share"
    else:
        text = f"its {cause.name} were {cause.factor:.1f} times the usual"
    advice = "Compare input and options with earlier runs"
    return JobFinding(cause.kind, cause.name, cause.factor, None, text, advice)


def _of_alarm(cause: Cause, alarm: PathAlarm) -> JobFinding:
    return replace(alarm_finding(alarm), kind=cause.kind, cause=cause.name, factor=cause.factor)


def alarm_finding(alarm: PathAlarm) -> JobFinding:
    """An alarm on a job's path, whether it explains how long the job takes or not."""
    straggler = alarm.straggler
    since = datetime.fromtimestamp(alarm.since, UTC).strftime("%Y-%m-%d %H:%M")
    verb, span = "has been", f"since {since}"
    if np.isfinite(alarm.until):
        until = datetime.fromtimestamp(alarm.until, UTC).strftime("%Y-%m-%d %H:%M")
        verb, span = "was", f"from {since} to {until.removeprefix(since[:11])}"
    text = (
        f"{straggler.component} {verb} a straggler ({straggler.severity:.1f} times slower) "
        f"{span} UTC and carried {100 * straggler.carried:.0f}% of its bytes"
    )
    name, factor = straggler.component, straggler.severity
    return JobFinding("straggler", name, factor, straggler.carried, text, _OPERATORS)
