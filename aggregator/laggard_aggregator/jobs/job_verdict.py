"""The verdict on a finished job: its phases beside those of its earlier runs, causes of slowness, and advice.

Computed from the archive when somebody asks, as few jobs are ever looked at. The phases of a finished job
change with its revision alone, so those of earlier runs are kept.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np

from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.jobs.analysis.advice import KIB, Footprint, advice
from laggard_aggregator.jobs.analysis.causes import (
    Cause,
    PathStraggler,
    SlowPhase,
    ranked_causes,
)
from laggard_aggregator.jobs.analysis.phases import Phase, find_phases
from laggard_aggregator.jobs.analysis.rate_series import rate_series
from laggard_aggregator.jobs.analysis.run_history import LEAST_RUNS, PhaseKey, RunPhases, RunVerdict, judge
from laggard_aggregator.jobs.job_results import JobResults
from laggard_aggregator.jobs.neighbour_load import NeighbourEvidence, NeighbourLoads, described
from laggard_aggregator.jobs.own_numbers import MEANS, Requests, own_numbers, requests
from laggard_aggregator.jobs.path_shares import carried_shares, names
from laggard_aggregator.jobs.principals import Principal
from laggard_aggregator.jobs.queries import JobQueries, Row
from laggard_common.errors import ArchiveError, InputError

MOST_EARLIER: Final = 20
"""Earlier runs beside a job; each takes a look into the archive's folder of its day."""
_KEPT: Final = 4096
_LAYERS: Final = ("client", "forwarder", "server")
_DIRECTIONS: Final = {"read_bytes": "read", "written_bytes": "write", "metadata_operations": "metadata"}
_DOING: Final = {"read": "Reading", "write": "Writing", "metadata": "Metadata work"}
_USUAL_DAYS: Final = 7
_DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class JobFinding:
    """One finding. `cause`: a component, a number of the job's own, or empty; `share`: of its volume."""

    kind: str
    cause: str
    factor: float
    share: float | None
    text: str
    advice: str


@dataclass(frozen=True, slots=True)
class RunReport:
    """`verdict`: slow, as usual, different work, too few runs or not judged; `sentence`: with its evidence.

    `factor`: duration as a multiple of the expected one. `phases`: by layer's series, in order of time.
    """

    verdict: str
    sentence: str
    factor: float | None = None
    phases: Sequence[Phase] = ()
    findings: Sequence[JobFinding] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """The verdict as JSON has it."""
        return asdict(self) | {
            "phases": [asdict(each) for each in self.phases],
            "findings": [asdict(each) for each in self.findings],
        }


class JobJudge:
    """Judges jobs of the archive in `directory`; `queries` decides who may see a job. For any thread."""

    def __init__(self, directory: Path, queries: JobQueries) -> None:
        self._directory = directory
        self._queries = queries
        self._results = JobResults(directory, queries)
        self._neighbours = NeighbourLoads(queries, self._results)
        self._phases: dict[tuple[str, int], list[Phase]] = {}
        self._lock = Lock()

    def verdict(self, principal: Principal, job: Row) -> RunReport:
        """The verdict on a job that `principal` may see. Raises ArchiveError."""
        if job["end"] is None:
            return RunReport("not judged", "Not judged: it has not ended")
        phases = self._phases_of(principal, job)
        footprint = _footprint(job, self._requests_of(principal, job))
        found = [JobFinding(**asdict(each), cause="") for each in advice(footprint)]
        if not phases:
            return RunReport("not judged", "Not judged: the archive has no I/O of it", findings=found)
        earlier = self._queries.earlier(principal, job["job_key"], MOST_EARLIER)
        history = [
            _run(each, phases_then) for each in earlier if (phases_then := self._phases_of(principal, each))
        ]
        run = _run(job, phases)
        judged = judge(run, history)
        if judged.verdict != "slow" or judged.factor is None:
            return RunReport(judged.verdict, _sentence(judged, len(history)), judged.factor, phases, found)
        causes = self._causes(principal, job, phases, judged.factor, earlier)
        sentence = f"{_slowness(run, history, judged.factor)}; {_because(causes)}"
        return RunReport("slow", sentence, judged.factor, phases, [*causes, *found])

    def _phases_of(self, principal: Principal, job: Row) -> list[Phase]:
        key = (job["job_key"], job["revision_at"])
        with self._lock:
            known = self._phases.get(key)
        if known is None:
            known = list(_phases(self._results.series(principal, job["job_key"])))
            with self._lock:
                if len(self._phases) >= _KEPT:
                    self._phases.clear()
                self._phases[key] = known
        return known

    def _causes(
        self, principal: Principal, job: Row, phases: Sequence[Phase], factor: float, earlier: Sequence[Row]
    ) -> list[JobFinding]:
        start, end = min(each.start for each in phases), max(each.end for each in phases)
        stragglers = self._stragglers(principal, job, start, end)
        own = list(own_numbers(job, earlier, lambda each: self._requests_of(principal, each)))
        now = {each.name: each.now for each in own}
        runs = [(each, spans) for each in earlier if (spans := _spans(self._phases_of(principal, each)))]
        beside = self._neighbours.evidence(principal, job, _spans(phases), factor, runs)
        carried = {each.component: each for each in stragglers}
        loads = {(each.unit, each.evidence.job, each.evidence.component): each for each in beside}
        phase = SlowPhase(start, end, factor)
        found: dict[tuple[str, str], JobFinding] = {}
        for cause in ranked_causes(phase, stragglers, [each.evidence for each in beside], own):
            neighbour = loads.get((cause.kind, cause.name, cause.component))
            if neighbour is None:
                finding = _finding(cause, carried.get(cause.component), now.get(cause.name, 0.0))
                found.setdefault((cause.kind, cause.name), finding)
            else:
                found.setdefault(("neighbour", cause.name), _of_neighbour(cause, neighbour, principal))
        return list(found.values())

    def _requests_of(self, principal: Principal, job: Row) -> Mapping[str, Requests]:
        return requests(self._results.components(principal, job["job_key"]))

    def _stragglers(self, principal: Principal, job: Row, start: float, end: float) -> list[PathStraggler]:
        """Alarms that stood while the job did I/O, of components that carried some of it."""
        carried = carried_shares(self._results.components(principal, job["job_key"]))
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
        days = [datetime.fromtimestamp(at, UTC).date().isoformat() for at in (start, end + _DAY)]
        columns = ["component", "since", "at", "transition", "worst_severity"]
        try:
            reader = ArchiveReader(self._directory)
            table = reader.table("alarms", columns=columns, first_day=days[0], last_day=days[1])
        except InputError as exc:
            raise ArchiveError(str(self._directory), str(exc)) from exc
        standing: dict[tuple[str, float], tuple[float, float]] = {}
        for row in table.to_pylist():
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


def _phases(series: Iterable[Row]) -> Iterator[Phase]:
    """Phases of the whole job in the outermost layer that was observed, in order of time."""
    whole = {row["layer"]: row for row in series if row["node"] is None}
    row = next((whole[layer] for layer in _LAYERS if layer in whole), None)
    found = []
    for name, direction in _DIRECTIONS.items() if row is not None else ():
        values = row[name] if row is not None else None
        if row is None or values is None or np.isfinite(values).sum() < 2:
            continue
        middle = np.arange(len(values)) + 0.5  # phases end half a value around those of their values
        times = row["start"] + row["resolution_seconds"] * middle
        found += find_phases(rate_series(times, values), direction)
    yield from sorted(found, key=lambda each: (each.start, each.direction))


def _spans(phases: Sequence[Phase]) -> list[tuple[float, float]]:
    """Times of phases; those of several directions that meet become one."""
    found: list[tuple[float, float]] = []
    for each in sorted(phases, key=lambda phase: phase.start):
        if found and each.start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], each.end)
        else:
            found.append((each.start, each.end))
    return found


def _run(job: Row, phases: Sequence[Phase]) -> RunPhases:
    """A run for `judge`: time and amount of all phases of each direction."""
    sums: dict[PhaseKey, tuple[float, float]] = {}
    for each in phases:
        key = (each.direction, each.direction)
        seconds, amount = sums.get(key, (0.0, 0.0))
        sums[key] = (seconds + each.end - each.start, amount + each.amount)
    filled = {key: (seconds, max(amount, 1.0)) for key, (seconds, amount) in sums.items()}
    return RunPhases(job["job_key"], job["application"], job["node_count"] or 1, filled)


def _footprint(job: Row, asked_by: Mapping[str, Requests]) -> Footprint:
    """The job's totals by its counters; modes and files are unknown without traces."""
    asked = job["s_client_read_bytes"]
    return Footprint(
        nodes=job["node_count"] or 1,
        read_bytes=job["s_read_bytes"] or 0.0,
        written_bytes=job["s_written_bytes"] or 0.0,
        reads=asked_by["read"].count if "read" in asked_by else None,
        writes=asked_by["write"].count if "write" in asked_by else None,
        metadata_rate=job["s_mdops"],
        forwarder_bytes=job["s_forwarder_read_bytes"] if asked else None,
    )


def _sentence(judged: RunVerdict, runs: int) -> str:
    if judged.verdict == "too few runs":
        same = "of the same user, project, application and nodes"
        return f"Too few runs: {runs} earlier ones {same}, {LEAST_RUNS} are needed"
    if judged.verdict == "as usual":
        return f"As usual, by {runs} earlier runs"
    return f"Different work than that of its {runs} earlier runs"


def _slowness(run: RunPhases, history: Sequence[RunPhases], factor: float) -> str:
    """How much longer the direction that lost most took than in the median of earlier runs."""
    lost: dict[str, tuple[float, float, int]] = {}
    for key, (seconds, _) in run.phases.items():
        earlier = [each.phases[key][0] for each in history if key in each.phases]
        if len(earlier) >= LEAST_RUNS:
            median = float(np.median(earlier))
            lost[key[0]] = (seconds - median, seconds / median, len(earlier))
    direction, (_, times, runs) = max(lost.items(), key=lambda each: each[1][0])
    return (
        f"{_DOING[direction]} took {times:.1f} times the median of {runs} earlier runs, "
        f"its I/O {factor:.1f} times what its volume makes expected"
    )


def _because(causes: Sequence[JobFinding]) -> str:
    return causes[0].text if causes else "no cause is known"


def _of_neighbour(cause: Cause, found: NeighbourEvidence, principal: Principal) -> JobFinding:
    """A neighbour as `principal` may see it; its factor has two digits."""
    name, text = described(found, principal)
    return JobFinding(
        "neighbour", name, float(f"{cause.factor:.2g}"), None, text, "Nothing in the job: tell the operators"
    )


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
        "Nothing in the job: tell the operators",
    )
