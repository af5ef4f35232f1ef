"""The report's numbers, a record each, for scripts."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from laggard_aggregator.web.report.contents import CentreReport, amplification, lost_seconds

_JOB: Final = ("job_key", "job", "user", "account", "application", "start", "end", "node_count")
_LOAD: Final = ("name", "mean", "used", "largest", "above")


def json_lines(report: CentreReport) -> str:
    """The records, one JSON object a line."""
    return "".join(f"{json.dumps(record)}\n" for record in records(report))


def records(report: CentreReport) -> Iterator[dict[str, Any]]:
    """Yields records with their kind as `record`, in the order of the page. NaN is null."""
    times = {"start": report.start, "end": report.end}
    yield {
        "record": "total", **times, **asdict(report.total),
        "slow_jobs": report.slow_jobs, "amplified_jobs": report.amplified_jobs,
    }  # fmt: skip
    for job in report.slow:
        yield {
            "record": "slow", **_columns(job, _JOB), "slowdown": job["slowdown"],
            "lost_seconds": lost_seconds(job), "sentence": job["sentence"],
        }  # fmt: skip
    for one in report.persistence.ranked:
        hours = report.persistence.anomalous_hours.get(one.component, 0)
        yield {"record": "persistent", **asdict(one), "anomalous_hours": hours}
    for hour in report.persistence.hours:
        for one in hour.components:
            yield {"record": "persistent_hour", "hour": hour.start, **asdict(one)}
    for volume in report.modes.volumes:
        yield {"record": "mode", **asdict(volume)}
    for row in report.classes:
        yield {"record": "class", **asdict(row)}
    for group, rows in (("application", report.applications), ("user", report.users)):
        for top in rows:
            yield {"record": group, **asdict(top)}
    for job in report.amplified:
        yield {"record": "amplified", **_columns(job, _JOB), "amplification": amplification(job)}
    for load in report.loads:
        for shown in load.rows:
            unit = load.axis["kind"].unit
            yield {"record": "load", "kind": load.name, "unit": unit, **_columns(shown, _LOAD)}


def _columns(row: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: None if row[name] != row[name] else _plain(row[name]) for name in names}


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
