"""The verdict on a finished job: its phases beside those of its earlier runs, causes of slowness, and advice.

The daemon stores a verdict after each join of a job: that one is shown, in lists and on pages. A job without
one is judged from the archive when somebody asks. The phases of a finished job change with its revision
alone, so those of earlier runs are kept.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.results import JobResults
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.index.reader import Row
from laggard_aggregator.jobs.tables import BUSY_SECONDS
from laggard_aggregator.jobs.traces.io_modes import ModeShares
from laggard_aggregator.jobs.traces.job_traces import JobTraces, shares
from laggard_aggregator.jobs.verdict import LAGGARD
from laggard_aggregator.jobs.verdict.analysis.advice import Footprint, advice
from laggard_aggregator.jobs.verdict.analysis.phases import Phase, find_phases, timed
from laggard_aggregator.jobs.verdict.analysis.rate_series import rate_series
from laggard_aggregator.jobs.verdict.analysis.run_history import (
    LEAST_RUNS,
    PhaseKey,
    RunPhases,
    RunVerdict,
    judge,
)
from laggard_aggregator.jobs.verdict.causes import JobCauses, JobFinding, SlowJob, alarm_finding, within
from laggard_aggregator.jobs.verdict.evidence.alarms import SlowTime, path_alarms, slow_times
from laggard_aggregator.jobs.verdict.evidence.component_times import ComponentTimes, component_times
from laggard_aggregator.jobs.verdict.evidence.logs import log_findings
from laggard_aggregator.jobs.verdict.evidence.path_shares import carried_shares
from laggard_aggregator.jobs.verdict.evidence.requests import requests, waiting
from laggard_aggregator.jobs.verdict.evidence.run_paths import run_path
from laggard_aggregator.jobs.verdict.running import MOST_SECONDS, RunningJobs
from laggard_aggregator.status.formatting import counted, lasting, size, zoned

MOST_EARLIER: Final = 20
"""Earlier runs beside a job; each takes a look into the archive's folder of its day."""
_KEPT: Final = 4096
SHOWN: Final = ("kind", "cause", "factor", "share", "text", "advice")
"""The columns of a finding that readers get."""
NO_CAUSE: Final = "no cause is known"
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
        return self.verdict == "slow" and not self.sentence.endswith(NO_CAUSE)

    def named(self, seen: Callable[[str], bool]) -> "RunReport":
        """The report with the identity of the neighbours of which `seen` holds."""
        sentence, findings = self.sentence, []
        for finding in self.findings:
            key, text = finding.neighbour, finding.named
            if key is not None and text is not None and seen(key):
                sentence = sentence.replace(finding.text, text)
                finding = replace(finding, cause=key, text=text)  # noqa: PLW2901
            findings.append(finding)
        return replace(self, sentence=sentence, findings=findings)

    def record(self) -> dict[str, Any]:
        """The verdict as JSON has it, but for the modes, which are part of the summary there."""
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "factor": self.factor,
            "phases": [asdict(item) for item in self.phases],
            "findings": [{name: getattr(item, name) for name in SHOWN} for item in self.findings],
        }


class JobJudge:
    """Judges jobs of the archive in `directory`, whose index `queries` asks. For any thread.

    `served_by`: the forwarder of each node that has one, as far as the caller knows. `jobid_format`: of
    Lustre, for jobs that run.
    """

    def __init__(
        self,
        directory: Path,
        queries: JobQueries,
        served_by: Mapping[str, str] = MappingProxyType({}),
        now_ns: Callable[[], int] = time.time_ns,
        jobid_format: str = "",
    ) -> None:
        self._queries = queries
        self._directory, self._served_by, self._now_ns = directory, served_by, now_ns
        self._results = JobResults(directory)
        self._running = RunningJobs(directory, served_by, now_ns, jobid_format)
        self._traces = JobTraces(directory, queries)
        self._causes = JobCauses(directory, queries, self._results, served_by, self._traces.modes)
        self._phases: dict[tuple[str, int], list[Phase]] = {}
        self._slow: set[str] = set()
        """Keys of the jobs that were judged slow here, of which the index does not know yet."""
        self._lock = Lock()

    def shown(self, job: VisibleJob, method: str = "") -> RunReport:
        """The verdict on a job as its reader may see it: the stored one, if any. Raises ArchiveError.

        `method`: of METHODS, finds slow components whatever the verdict is, and judges the job with them; by
        default the detector does for slow jobs.
        """
        if method or job["verdict"] is None:
            report = self.verdict(job, method)
            return report.named(lambda key: self._queries.job(job.principal, key) is not None)
        findings = [JobFinding(**finding) for finding in job["findings"]]
        phases = self._phases_of(job) if job["end"] is not None else ()
        return RunReport(
            job["verdict"], job["sentence"] or "", job["slowdown"], phases, findings, self._modes(job)
        )

    def verdict(self, job: VisibleJob, method: str = "") -> RunReport:
        """The verdict on a job by the archive, without identity of neighbours. Raises ArchiveError."""
        if job["end"] is None:
            return self._so_far(job)
        modes = self._traces.modes(job)
        report = self._judged(job, method, modes)
        if report.verdict == "slow" and job["verdict"] != "slow":
            self._slow.add(job.key)
        return replace(report, modes=shares(modes) if modes else None)

    def logs(self, job: VisibleJob) -> list[Row]:
        """Rows of `job_logs`: the contents of its Darshan logs. Raises ArchiveError."""
        return self._results.logs(job)

    def components(self, job: VisibleJob) -> list[ComponentTimes]:
        """Its components, slow ones first. Raises ArchiveError."""
        running = self._running.of(job)
        return component_times(self._results.components(job) if running is None else running.components)

    def slow_times(self, job: VisibleJob, components: Collection[str]) -> list[SlowTime]:
        """Times of the job in which `components` were anomalous by the daemon. Raises ArchiveError."""
        if not components or job["start"] is None:
            return []
        end = self._now_ns() / 1e9 if job["end"] is None else job["end"]
        return slow_times(self._directory, components, job["start"], end)

    def series(self, job: VisibleJob) -> list[Row]:
        """Rows of `job_series`, of a running job until now. Raises ArchiveError."""
        running = self._running.of(job)
        return self._results.series(job) if running is None else running.series

    def so_far(self, job: VisibleJob) -> VisibleJob:
        """A job with its numbers, a running one with those until now. Raises ArchiveError."""
        running = self._running.of(job)
        return job if running is None else job.so_far(running.summary)

    def _so_far(self, job: VisibleJob) -> RunReport:
        """The I/O of a running job until now, with the alarms on its path."""
        running = self._running.of(job)
        if running is None:
            return RunReport("not judged", "Not judged: it has not begun")
        phases = list(_phases(running.series))
        read, written = (running.summary[name] for name in ("read_bytes", "written_bytes"))
        volumes = f"it read {size(read)} and wrote {size(written)}"
        moved = "the archive has no counters of it" if read is None else volumes
        lasted = running.until - (job["start"] or running.since)
        span = "" if lasted <= MOST_SECONDS else f" in its last {lasting(MOST_SECONDS)}"
        findings = []
        if phases:
            path = run_path(running.components, phases, self._served_by, {})
            carried = carried_shares(running.components)
            findings = [alarm_finding(alarm) for alarm in path_alarms(self._directory, path, carried)]
        because = f"; {findings[0].text}" if findings else ""
        sentence = f"It runs: until {zoned(running.until)} {moved}{span}{because}"
        return RunReport("not judged", sentence, None, phases, findings)

    def _modes(self, job: VisibleJob) -> Mapping[str, float] | None:
        modes = self._traces.modes(job)
        return shares(modes) if modes else None

    def _judged(self, job: VisibleJob, method: str, modes: Mapping[str, ModeShares]) -> RunReport:
        phases = self._phases_of(job)
        rows = self._results.components(job)
        footprint = _footprint(job, rows, modes)
        logs = log_findings(self._results.logs(job))
        others = [*logs, *(JobFinding(**asdict(advised), cause="") for advised in advice(footprint))]
        if not phases:
            sentence = _with_log(f"Not judged: {_unphased(job)}", logs)
            return RunReport("not judged", sentence, findings=[*within(component_times(rows)), *others])
        earlier = self._queries.earlier(job, MOST_EARLIER)
        compared = self._usual([(other, own) for other, own in self._phases_of_runs(earlier) if own])
        history = [_run(other, own) for other, own in compared]
        run = _run(job, phases)
        judged = judge(run, history)
        asked = SlowJob(job, phases, judged.factor)
        if judged.verdict != "slow" or judged.factor is None:
            parts = self._causes.slow_components(asked, method) if method else within(component_times(rows))
            sentence = _sentence(judged, len(history))
            if judged.verdict != "as usual":
                sentence = _with_log(sentence, logs)
            return RunReport(judged.verdict, sentence, judged.factor, phases, [*parts, *others])
        causes = self._causes.ranked(asked, compared, method or LAGGARD)
        because = next((cause.text for cause in (*causes.ranked, *logs)), NO_CAUSE)
        sentence = f"{_slowness(run, history, judged.factor)}; {because}"
        findings = [*causes.ranked, *causes.beside, *others]
        return RunReport("slow", sentence, judged.factor, phases, findings)

    def _usual(self, runs: list[tuple[VisibleJob, list[Phase]]]) -> list[tuple[VisibleJob, list[Phase]]]:
        """Runs without those that were slow themselves; all where these are the most, or few are left."""
        usual = [(other, own) for other, own in runs if not self._was_slow(other)]
        return usual if len(usual) >= max(LEAST_RUNS, len(runs) / 2) else runs

    def _was_slow(self, job: VisibleJob) -> bool:
        return job["verdict"] == "slow" or job.key in self._slow

    def _phases_of(self, job: VisibleJob) -> list[Phase]:
        ((_, phases),) = self._phases_of_runs([job])
        return phases

    def _phases_of_runs(self, jobs: Sequence[VisibleJob]) -> list[tuple[VisibleJob, list[Phase]]]:
        """Finished jobs with their phases; series that are needed are read together."""
        keys = {job.key: (job.key, job["revision_at"]) for job in jobs}
        with self._lock:
            known = {name: self._phases[key] for name, key in keys.items() if key in self._phases}
        missing = [job for job in jobs if job.key not in known]
        series = self._results.whole_series_of(missing) if missing else {}
        made = {job.key: list(_phases(series.get(job.key, ()))) for job in missing}
        with self._lock:
            if len(self._phases) + len(made) > _KEPT:
                self._phases.clear()
            self._phases |= {keys[name]: phases for name, phases in made.items()}
        return [(job, (known | made)[job.key]) for job in jobs]


def _phases(series: Iterable[Row]) -> Iterator[Phase]:
    """Phases of the whole job in the outermost layer that was observed, in order of time."""
    whole = {row["layer"]: row for row in series if row["node"] is None}
    row = next((whole[layer] for layer in _LAYERS if layer in whole), None)
    phases = []
    for name, direction in _DIRECTIONS.items() if row is not None else ():
        values = row[name] if row is not None else None
        if row is None or values is None or np.isfinite(values).sum() < 2:
            continue
        middle = np.arange(len(values)) + 0.5  # phases end half a value around those of their values
        times = row["start"] + row["resolution_seconds"] * middle
        series_of = rate_series(times, values, row.get(BUSY_SECONDS[name]))
        phases += find_phases(series_of, direction, reading_seconds=row.get("reading_seconds"))
    yield from sorted(phases, key=lambda phase: (phase.start, phase.direction))


def _run(job: VisibleJob, phases: Sequence[Phase]) -> RunPhases:
    """A run for `judge`: busy time and amount of all phases of each direction."""
    sums: dict[PhaseKey, tuple[float, float]] = {}
    for phase in timed(phases):
        key = (phase.direction, phase.direction)
        seconds, amount = sums.get(key, (0.0, 0.0))
        sums[key] = (seconds + phase.busy_seconds, amount + phase.amount)
    filled = {key: (seconds, max(amount, 1.0)) for key, (seconds, amount) in sums.items()}
    return RunPhases(job["job_key"], job["application"], job["node_count"] or 1, filled)


def _footprint(job: VisibleJob, components: Sequence[Row], modes: Mapping[str, ModeShares]) -> Footprint:
    """The job's totals by its counters, and modes by its traces; files are unknown."""
    asked_by = requests(components)
    asked = job["s_client_read_bytes"]
    on_shared_forwarders = any(row["layer"] == "forwarder" and row["shared"] for row in components)
    return Footprint(
        nodes=job["node_count"] or 1,
        read_bytes=job["s_read_bytes"] or 0.0,
        written_bytes=job["s_written_bytes"] or 0.0,
        reads=asked_by["read"].count if "read" in asked_by else None,
        writes=asked_by["write"].count if "write" in asked_by else None,
        metadata_rate=job["s_mdops"],
        modes={direction: mode.shares for direction, mode in modes.items()} or None,
        forwarder_bytes=job["s_forwarder_read_bytes"] if asked and not on_shared_forwarders else None,
        server_bytes=job["s_server_read_bytes"] if asked else None,
        waiting=waiting(job, components),
    )


def _unphased(job: VisibleJob) -> str:
    """Why a job has no phases."""
    read, written, metadata = (job[f"s_{name}"] for name in _DIRECTIONS)
    if read is None and written is None and metadata is None:
        return "the archive has no counters of it"
    if not (read or written or metadata):
        return "it did no I/O, by its counters"
    moved = f"it read {size(read or 0.0)} and wrote {size(written or 0.0)}"
    opened = counted(round(metadata or 0.0), "metadata operation")
    return f"none of its I/O stands out as a phase: {moved}, with {opened}"


def _with_log(sentence: str, logs: Sequence[JobFinding]) -> str:
    """A sentence and, if there is one, the first finding of the job's Darshan logs."""
    return f"{sentence}; by its Darshan log, {logs[0].text}" if logs else sentence


def _sentence(judged: RunVerdict, runs: int) -> str:
    if judged.verdict == "too few runs":
        known = counted(runs, "earlier run") if runs else "no earlier run"
        same = "of the same user, project, application and number of nodes"
        return f"Too few runs: {known} {same}; {LEAST_RUNS} are needed"
    if judged.verdict == "as usual":
        return f"As usual, by {runs} earlier runs"
    return f"Different work from its {runs} earlier runs"


def _slowness(run: RunPhases, history: Sequence[RunPhases], factor: float) -> str:
    """How much longer the direction that lost most took than in the median of earlier runs."""
    lost: dict[str, tuple[float, float, int]] = {}
    for key, (seconds, _) in run.phases.items():
        earlier = [other.phases[key][0] for other in history if key in other.phases]
        if len(earlier) >= LEAST_RUNS:
            median = float(np.median(earlier))
            lost[key[0]] = (seconds - median, seconds / median, len(earlier))
    direction, (_, times, runs) = max(lost.items(), key=lambda loss: loss[1][0])
    return (
        f"{_DOING[direction]} took {times:.1f} times the median of {runs} earlier runs, "
        f"all its I/O {factor:.1f} times as long as expected for its volume"
    )
