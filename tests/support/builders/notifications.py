"""Notifications for the tests of channels."""

from dataclasses import replace
from typing import Any

from laggard_aggregator.notify.incidents import Incident
from laggard_aggregator.notify.report import IncidentReport, Kind, Notification
from laggard_aggregator.notify.test_notification import sample
from laggard_aggregator.status import urls

NOW = 1_760_000_500.0
PAGE = "https://laggard.example.org"


def report(
    name: str = "", severity: float | None = None, level: str = "component", **others: Any
) -> IncidentReport:
    """The report of the test notification with changes."""
    made = sample(NOW, PAGE, needs_token=False)
    incident = replace(made.incident, name=name or made.incident.name, level=level)
    worst = made.worst if severity is None else replace(made.worst, severity=severity)
    return replace(made, incident=incident, **{"comparisons": (worst,), **others})


def resolution(name: str = "oss-1/sda", *, recovered: bool = True) -> IncidentReport:
    incident = Incident(name, name, "luns", "component", "await", 4.0, NOW - 7200)
    return IncidentReport(incident, NOW, PAGE + urls.component("luns", name), recovered=recovered)


def raised(id_: str, *reports: IncidentReport, count: int = 1, kind: Kind | None = None) -> Notification:
    return Notification(
        id_, kind or ("straggler" if count == 1 else "digest"), "site", PAGE, count, reports=reports
    )


def resolved(
    id_: str, *found: IncidentReport, count: int = 1, resolves: tuple[str, ...] = ("s.1",)
) -> Notification:
    return Notification(id_, "resolved", "site", PAGE, count, found, resolves=resolves)
