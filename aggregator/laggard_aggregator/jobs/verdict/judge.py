"""The verdict on a finished job: its phases beside those of its earlier runs, causes of slowness, and advice.

Computed from the archive when somebody asks, as few jobs are ever looked at. The phases of a finished job
change with its revision alone, so those of earlier runs are kept.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np

from laggard_aggregator.jobs.access.principals import Principal
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.results import JobResults
from laggard_aggregator.jobs.index.reader import Row
from laggard_aggregator.jobs.traces.io_modes import ModeShares
from laggard_aggregator.jobs.traces.job_traces import JobTraces, shares
from laggard_aggregator.jobs.verdict import LAGGARD
from laggard_aggregator.jobs.verdict.analysis.advice import Footprint, advice
from laggard_aggregator.jobs.verdict.analysis.phases import Phase, find_phases
from laggard_aggregator.jobs.verdict.analysis.rate_series import rate_series
from laggard_aggregator.jobs.verdict.analysis.run_history import (
    LEAST_RUNS,
    PhaseKey,
    RunPhases,
    RunVerdict,
    judge,
)
from laggard_aggregator.jobs.verdict.causes import JobCauses, JobFinding, SlowJob
from laggard_aggregator.jobs.verdict.evidence.requests import requests, waiting

MOST_EARLIER: Final = 20
"""Earlier runs beside a job; each takes a look into the archive's folder of its day."""
_KEPT: Final = 4096
_NO_CAUSE: Final = "no cause is known"
_LAYERS: Final = ("client", "forwarder", "server")
_DIRECTIONS: Final = {"read_bytes": "read", "written_bytes": "write", "metadata_operations": "metadata"}
_DOING: Final = {"read": "Reading", "write": "Writing", "metadata": "Metadata work"}


@dataclass(frozen=True, slots=True)
class RunReport:
    """`verdict`: slow, as usual, different work, too few runs or not judged; `sentence`: with its evidence.

    `factor`: duration as a multiple of the expected one. `phases`: by layer's series, in order of time.
    `modes`: shares of the volume by I/O mode, None without a trace.
    """

    verdict: str
    sentence: str
    factor: float | None = None
    phases: Sequence[Phase] = ()
    findings: Sequence[JobFinding] = field(default_factory=list)
    modes: Mapping[str, float] | None = None

    @property
    def has_cause(self) -> bool:
        """Whether it was slow and a cause is known."""
        return self.verdict == "slow" and not self.sentence.endswith(_NO_CAUSE)

    def record(self) -> dict[str, Any]:
        """The verdict as JSON has it, but for the modes, which are part of the summary there."""
        found = asdict(self) | {
            "phases": [asdict(each) for each in self.phases],
            "findings": [asdict(each) for each in self.findings],
        }
        del found["modes"]
        return found


class JobJudge:
    """Judges jobs of the archive in `directory`; `queries` decides who may see a job. For any thread."""

    def __init__(self, directory: Path, queries: JobQueries) -> None:
        self._directory = directory
        self._queries = queries
        self._results = JobResults(directory, queries)
        self._causes = JobCauses(directory, queries, self._results)
        self._traces = JobTraces(directory, queries)
        self._phases: dict[tuple[str, int], list[Phase]] = {}
        self._lock = Lock()

    def verdict(
        self, principal: Principal, job: Row, method: str = "", reader: Principal | None = None
    ) -> RunReport:
        """The verdict on a job that `principal` may see. Raises ArchiveError.

        `method`: of METHODS, finds slow components whatever the verdict is; by default the detector does for
        slow jobs. `reader`: who reads the report, if another than who asks.
        """
        if job["end"] is None:
            return RunReport("not judged", "Not judged: it has not ended")
        modes = self._traces.modes(principal, job)
        report = self._judged(principal, job, method, reader, modes)
        return replace(report, modes=shares(modes) if modes else None)

    def _judged(
        self,
        principal: Principal,
        job: Row,
        method: str,
        reader: Principal | None,
        modes: Mapping[str, ModeShares],
    ) -> RunReport:
        phases = self._phases_of(principal, job)
        footprint = _footprint(job, self._results.components(principal, job["job_key"]), modes)
        found = [JobFinding(**asdict(each), cause="") for each in advice(footprint)]
        if not phases:
            return RunReport("not judged", "Not judged: the archive has no I/O of it", findings=found)
        earlier = self._queries.earlier(principal, job["job_key"], MOST_EARLIER)
        phased = [(each, then) for each in earlier if (then := self._phases_of(principal, each))]
        history = [_run(each, then) for each, then in phased]
        run = _run(job, phases)
        judged = judge(run, history)
        asked = SlowJob(principal, job, phases, judged.factor, reader or principal)
        if judged.verdict != "slow" or judged.factor is None:
            parts = self._causes.slow_components(asked, method) if method else []
            sentence = _sentence(judged, len(history))
            return RunReport(judged.verdict, sentence, judged.factor, phases, [*parts, *found])
        causes = self._causes.ranked(asked, phased, method or LAGGARD)
        because = causes.ranked[0].text if causes.ranked else _NO_CAUSE
        sentence = f"{_slowness(run, history, judged.factor)}; {because}"
        findings = [*causes.ranked, *causes.beside, *found]
        return RunReport("slow", sentence, judged.factor, phases, findings)

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


def _run(job: Row, phases: Sequence[Phase]) -> RunPhases:
    """A run for `judge`: time and amount of all phases of each direction."""
    sums: dict[PhaseKey, tuple[float, float]] = {}
    for each in phases:
        key = (each.direction, each.direction)
        seconds, amount = sums.get(key, (0.0, 0.0))
        sums[key] = (seconds + each.end - each.start, amount + each.amount)
    filled = {key: (seconds, max(amount, 1.0)) for key, (seconds, amount) in sums.items()}
    return RunPhases(job["job_key"], job["application"], job["node_count"] or 1, filled)


def _footprint(job: Row, components: Sequence[Row], modes: Mapping[str, ModeShares]) -> Footprint:
    """The job's totals by its counters, and modes by its traces; files are unknown."""
    asked_by = requests(components)
    asked = job["s_client_read_bytes"]
    return Footprint(
        nodes=job["node_count"] or 1,
        read_bytes=job["s_read_bytes"] or 0.0,
        written_bytes=job["s_written_bytes"] or 0.0,
        reads=asked_by["read"].count if "read" in asked_by else None,
        writes=asked_by["write"].count if "write" in asked_by else None,
        metadata_rate=job["s_mdops"],
        modes={direction: each.shares for direction, each in modes.items()} or None,
        forwarder_bytes=job["s_forwarder_read_bytes"] if asked else None,
        waiting=waiting(job, components),
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
