"""Causes of a job's slowness, from the archive.

They are stragglers on its path, components slow within it, neighbours, and its own change. Each becomes
evidence for `ranked_causes`; findings say it in words, as far as the asker may read them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from laggard_aggregator.archive.table import Table, day_of
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.results import JobResults
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.join.volumes import FORWARDER, SERVER
from laggard_aggregator.jobs.verdict.analysis.advice import KIB
from laggard_aggregator.jobs.verdict.analysis.causes import (
    Cause,
    PathStraggler,
    SlowPhase,
    ranked_causes,
)
from laggard_aggregator.jobs.verdict.analysis.phases import Phase
from laggard_aggregator.jobs.verdict.evidence.component_series import JobPlaces, component_series
from laggard_aggregator.jobs.verdict.evidence.neighbours import NeighbourEvidence, NeighbourLoads, described
from laggard_aggregator.jobs.verdict.evidence.path_shares import carried_shares, names
from laggard_aggregator.jobs.verdict.evidence.requests import MEANS, Requests, own_numbers, requests
from laggard_aggregator.jobs.verdict.evidence.slow_parts import SlowPart, slow_parts

_USUAL_DAYS: Final = 7
_ALARM_COLUMNS: Final = ("component", "since", "at", "transition", "worst_severity")
_DAY: Final = 86_400.0
_OPERATORS: Final = "Nothing in the job: tell the operators"


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
        return min(each.start for each in self.phases), max(each.end for each in self.phases)


@dataclass(frozen=True, slots=True)
class FoundCauses:
    """`ranked`: causes that pass, the likeliest first; `beside`: slow components that explain too little."""

    ranked: list[JobFinding] = field(default_factory=list)
    beside: list[JobFinding] = field(default_factory=list)


class JobCauses:
    """Finds causes in the archive in `directory`, whose index `queries` asks."""

    def __init__(self, directory: Path, queries: JobQueries, results: JobResults) -> None:
        self._directory = directory
        self._queries = queries
        self._results = results
        self._neighbours = NeighbourLoads(queries, results)

    def ranked(
        self, asked: SlowJob, earlier: Sequence[tuple[VisibleJob, Sequence[Phase]]], method: str
    ) -> FoundCauses:
        """Causes of a slow job; `method` finds its slow components. Raises ArchiveError."""
        start, end = asked.hull
        phase = SlowPhase(start, end, asked.factor or 1.0)
        stragglers = self._stragglers(asked)
        known = {name for each in stragglers for name in names(each.component, "")}
        parts = {
            each.component: each for each in self._slow_parts(asked, method) if each.component not in known
        }
        slow = [
            PathStraggler(each.component, start, end, each.factor, 0.0, each.carried)
            for each in parts.values()
        ]
        runs = [(each, _spans(phases)) for each, phases in earlier]
        beside = self._neighbours.evidence(asked.job, _spans(asked.phases), phase.factor, runs)
        own = list(own_numbers(asked.job, [each for each, _ in earlier], self.requests_of))
        now = {each.name: each.now for each in own}
        alarms = {each.component: each for each in stragglers}
        loads = {(each.unit, each.evidence.job, each.evidence.component): each for each in beside}
        found: dict[tuple[str, str], JobFinding] = {}
        for cause in ranked_causes(phase, [*stragglers, *slow], [each.evidence for each in beside], own):
            neighbour = loads.get((cause.kind, cause.name, cause.component))
            if neighbour is not None:
                found.setdefault(("neighbour", cause.name), _of_neighbour(cause, neighbour))
            elif cause.component in parts:
                found[cause.kind, cause.name] = _of_part(parts.pop(cause.component))
            else:
                found.setdefault(
                    (cause.kind, cause.name),
                    _finding(cause, alarms.get(cause.component), now.get(cause.name, 0.0)),
                )
        return FoundCauses(list(found.values()), [_of_part(each) for each in parts.values()])

    def requests_of(self, job: VisibleJob) -> Mapping[str, Requests]:
        """Requests of a job by direction. Raises ArchiveError."""
        return requests(self._results.components(job))

    def slow_components(self, asked: SlowJob, method: str) -> list[JobFinding]:
        """Components slower than the job's others, by one of METHODS. Raises ArchiveError."""
        return [_of_part(each) for each in self._slow_parts(asked, method)]

    def _slow_parts(self, asked: SlowJob, method: str) -> list[SlowPart]:
        job, used = asked.job, self._results.components(asked.job)
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

    def _stragglers(self, asked: SlowJob) -> list[PathStraggler]:
        """Alarms that stood while the job did I/O, of components that carried some of it."""
        carried = carried_shares(self._results.components(asked.job))
        start, end = asked.hull
        found = []
        for component, spans in self._alarms(start - _USUAL_DAYS * _DAY, end).items():
            mine = max(carried.get(name, 0.0) for name in names(component, ""))
            if not mine:
                continue
            before = sum(max(min(until, start) - since, 0.0) for since, until, _ in spans)
            found += [
                PathStraggler(component, since, until, severity, before / (_USUAL_DAYS * _DAY), mine)
                for since, until, severity in spans
                if since < end and until > start
            ]
        return found

    def _alarms(self, start: float, end: float) -> dict[str, list[tuple[float, float, float]]]:
        """Alarms that stood within [start, end) by component: since, until and the worst severity."""
        days = {"first_day": day_of(start), "last_day": day_of(end + _DAY)}
        alarms = Table(self._directory, "alarms").scan(_ALARM_COLUMNS, **days)
        standing: dict[tuple[str, float], tuple[float, float]] = {}
        for row in (row for table in alarms for row in table.to_pylist()):
            severity = row["worst_severity"]
            known = severity if severity is not None and np.isfinite(severity) else 1.0
            until = row["at"] if row["transition"] == "cleared" else np.inf
            last, worst = standing.get((row["component"], row["since"]), (np.inf, 1.0))
            standing[row["component"], row["since"]] = (min(last, until), max(worst, known))
        found: dict[str, list[tuple[float, float, float]]] = {}
        for (component, since), (until, worst) in standing.items():
            if since < end and until > start:
                found.setdefault(component, []).append((since, until, worst))
        return found


def _spans(phases: Sequence[Phase]) -> list[tuple[float, float]]:
    """Times of phases; those of several directions that meet become one."""
    found: list[tuple[float, float]] = []
    for each in sorted(phases, key=lambda phase: phase.start):
        if found and each.start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], each.end)
        else:
            found.append((each.start, each.end))
    return found


def _of_part(part: SlowPart) -> JobFinding:
    share = f"and it carried {part.carried:.0%} of the bytes"
    text = f"{part.component} was slow in this job: {part.text}, {share}"
    return JobFinding("slow component", part.component, part.factor, part.carried, text, _OPERATORS)


def _of_neighbour(cause: Cause, found: NeighbourEvidence) -> JobFinding:
    """A neighbour; its factor has two digits."""
    words, factor = described(found), float(f"{cause.factor:.2g}")
    return JobFinding("neighbour", words.name, factor, None, words.text, _OPERATORS, words.key, words.named)


def _finding(cause: Cause, straggler: PathStraggler | None, now: float) -> JobFinding:
    if straggler is None:
        text = (
            f"its {cause.name} of {now / KIB:.3g} KiB was {cause.factor:.1f} times smaller than the usual"
            if cause.name in MEANS
            else f"its {cause.name} were {cause.factor:.1f} times the usual"
        )
        return JobFinding(
            cause.kind, cause.name, cause.factor, None, text, "Compare input and options with earlier runs"
        )
    since = datetime.fromtimestamp(straggler.start, UTC).strftime("%Y-%m-%d %H:%M")
    until = (
        "" if np.isinf(straggler.end) else datetime.fromtimestamp(straggler.end, UTC).strftime(" to %H:%M")
    )
    text = (
        f"{straggler.component} was a straggler ({straggler.severity:.1f} times slower) "
        f"since {since}{until} UTC and carried {100 * straggler.carried:.0f} % of its bytes"
    )
    return JobFinding(
        cause.kind,
        cause.name,
        cause.factor,
        straggler.carried,
        text,
        _OPERATORS,
    )
