"""Records of jobs as commands, API and pages show them, and the same as CSV."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from laggard_aggregator.files.csv_lines import csv_lines
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.verdict.evidence.component_times import slow_sentence
from laggard_aggregator.jobs.verdict.judge import NO_CAUSE, JobJudge

_OWN: Final = (
    *("cluster", "job", "raw_id", "restarts", "user", "account", "name", "application", "partition", "state"),
    *("submit", "start", "end", "node_count"),
)
_SUMMARY: Final = (
    *("read_bytes", "written_bytes", "mean_read_mib_per_second", "peak_read_mib_per_second"),
    *("mean_written_mib_per_second", "peak_written_mib_per_second", "iops", "mdops", "amplification"),
    *("mean_read_mib_per_second_error", "mean_written_mib_per_second_error", "mdops_error"),
)
_VOLUMES: Final = (
    *("client_read_bytes", "client_written_bytes", "forwarder_read_bytes", "forwarder_written_bytes"),
    *("server_read_bytes", "server_written_bytes", "unaccounted_ratio"),
)
_MODES: Final = {
    "N-N": "mode_n_n",
    "N-M": "mode_n_m",
    "N-1": "mode_n_1",
    "1-1": "mode_1_1",
    "unknown": "mode_unknown",
}
CSV_COLUMNS: Final = (
    *("cluster", "job", "raw_id", "user", "account", "name", "application", "state"),
    *("submit", "start", "end", "node_count"),
    *_SUMMARY,
    "verdict",
)
_IO: Final = (
    *("module", "direction", "bytes", "requests", "files", "critical_files"),
    *("busy_seconds", "busy_lower_seconds", "span_seconds", "mib_per_second", "top_share"),
)
_LOG_FINDING: Final = ("direction", "kind", "component", "factor", "share", "text", "advice")
_LEAST_SHARE: Final = 0.01
_LEAST_DIFFERENCE: Final = 0.05
MOST_COMPONENTS: Final = 200
"""Components of one job that are shown, those on which it lost most."""


def job_record(job: Mapping[str, Any]) -> dict[str, Any]:
    """A job of a list, without its nodes."""
    modes = {name: job[f"s_{column}"] for name, column in _MODES.items()}
    return {
        "key": job["job_key"],
        **{name: job[name] for name in _OWN},
        "shared": None if job["s_shared"] is None else bool(job["s_shared"]),
        "summary": {**{name: job[f"s_{name}"] for name in _SUMMARY}, "mode": modes},
        "coverage": job["s_coverage"],
        "trace_difference": job["s_trace_difference"],
        "verdict": job["verdict"] or "not judged",
        "findings": job.get("findings", []),
    }


def logs_record(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The verdict on the Darshan logs of a job, by the names of `laggard mine --json`; None without any."""
    if not rows:
        return None
    return {
        "logs": [row["log"] for row in rows if row["record"] == "log"],
        "io": [{name: row[name] for name in _IO} for row in rows if row["record"] == "io"],
        "findings": [
            {name: row[name] for name in _LOG_FINDING} for row in rows if row["record"] == "finding"
        ],
        "not_judged": [
            {"what": row["kind"], "reason": row["text"]} for row in rows if row["record"] == "not_judged"
        ],
    }


def full_record(queries: JobQueries, judge: JobJudge, job: VisibleJob, method: str = "") -> dict[str, Any]:
    """A job with verdict, nodes, volumes by layer, components, history and neighbours.

    `method`: as in `JobJudge.shown`. Only what its reader may see.
    """
    job = judge.so_far(job)
    history = queries.history(job)
    components = judge.components(job)
    within = slow_sentence(components)
    report, own = judge.shown(job, method), job_record(job)
    if report.modes is not None:
        own["summary"]["mode"] = dict(report.modes)
    sentence = report.sentence
    if within and sentence.endswith(NO_CAUSE):
        sentence = f"{sentence.removesuffix(NO_CAUSE)}within it, {within}"
    return {
        **own,
        **report.record(),
        "sentence": sentence,
        "nodes": list(dict.fromkeys(other["name"] for other in queries.nodes(job))),
        "volumes": {name: job[f"s_{name}"] for name in _VOLUMES},
        "shared_layers": sorted({component.layer for component in components if component.shared}),
        "components": [component.record() for component in components[:MOST_COMPONENTS]],
        "slow_components": within,
        "mib_per_second": job["rate"],
        "mib_per_second_error": job["s_mib_per_second_error"],
        "darshan": logs_record(judge.logs(job)),
        "history": None
        if history is None
        else {name: getattr(history, name) for name in ("runs", "p10", "median", "p90")},
        "neighbours": [
            {
                "load": other.text,
                "key": None if other.job is None else other.job["job_key"],
                "job": None if other.job is None else other.job["job"],
                "user": None if other.job is None else other.job["user"],
            }
            for other in queries.neighbours(job)
        ],
    }


def trace_text(difference: float | None) -> str:
    """How traces and counters of the same nodes differ, in words; empty where they agree."""
    if difference is None or abs(difference) < _LEAST_DIFFERENCE:
        return ""
    if difference < 0:
        return f"its traces have {-difference:.0%} fewer bytes than the counters of the same nodes"
    return f"its counters have {difference:.0%} fewer bytes than the traces of the same nodes"


def mode_text(modes: Mapping[str, float | None]) -> str:
    """The I/O modes in words: those with a hundredth of the volume, the largest first; or unknown."""
    known = {name: share for name, share in modes.items() if share is not None and share >= _LEAST_SHARE}
    shares = sorted((-share, name) for name, share in known.items())
    if [name for _, name in shares] in ([], ["unknown"]):
        return "unknown"
    return ", ".join(f"{name} {-share:.0%}" for share, name in shares)


def job_lines(records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Lines of CSV with a job each."""
    values = ({**record, **record["summary"]} for record in records)
    return csv_lines(CSV_COLUMNS, ([row[name] for name in CSV_COLUMNS] for row in values))
