"""The report's numbers, a record each, for scripts."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from laggard_aggregator.files.csv_lines import csv_lines
from laggard_aggregator.files.json_line import line
from laggard_aggregator.web.report.contents import CentreReport, amplification, lost_seconds

RECORDS: Final = (
    *("total", "slow", "persistent", "persistent_hour", "mode", "class", "application", "user"),
    *("amplified", "load"),
)
"""Kinds of records, in the order of the page."""
_JOB: Final = ("job_key", "job", "user", "account", "application", "start", "end", "node_count")
_LOAD: Final = ("name", "mean", "used", "largest", "above")


def json_lines(report: CentreReport) -> str:
    """The records, one JSON object a line."""
    return "".join(f"{line(record)}\n" for record in records(report))


def csv_tables(records: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The records as CSV, a text for each kind that has some; kinds that a report has not are left out."""
    by_kind: dict[str, list[Mapping[str, Any]]] = {kind: [] for kind in RECORDS}
    for record in records:
        if record["record"] in by_kind:
            by_kind[record["record"]].append(record)
    tables = {}
    for kind, rows in by_kind.items():
        if not rows:
            continue
        names = [name for name in dict.fromkeys(name for row in rows for name in row) if name != "record"]
        tables[kind] = "".join(csv_lines(names, ([row.get(name) for name in names] for row in rows)))
    return tables


def records(report: CentreReport) -> Iterator[dict[str, Any]]:
    """Yields records with their kind as `record`, in the order of the page. Unknown values are None."""
    for record in _records(report):
        yield {name: _plain(value) for name, value in record.items()}


def _records(report: CentreReport) -> Iterator[dict[str, Any]]:
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
    for component in report.persistence.ranked:
        hours = report.persistence.anomalous_hours.get(component.component, 0)
        yield {"record": "persistent", **asdict(component), "anomalous_hours": hours}
    for hour in report.persistence.hours:
        for component in hour.components:
            yield {"record": "persistent_hour", "hour": hour.start, **asdict(component)}
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
    return {name: row[name] for name in names}


def _plain(value: Any) -> Any:
    """A value as JSON has it, None for a number that is not finite."""
    plain = value.item() if hasattr(value, "item") else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain
