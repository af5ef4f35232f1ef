"""Payloads of the webhook: JSON of version 1, and texts for Slack and Mattermost."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from laggard_aggregator.notify.report import Comparison, IncidentReport, Notification
from laggard_aggregator.status.formatting import figure, iso, lasting, or_null, plain, spaced

VERSION = 1
MAX_TEXT_CHARS = 2800
"""Slack takes 3000 characters in a section, Mattermost more."""


def json_payload(notification: Notification) -> Any:
    """The notification as JSON; README.md lists the fields. Unknown numbers are null."""
    return {
        "version": VERSION,
        "id": notification.id,
        "kind": notification.kind,
        "site": notification.site,
        "subject": notification.subject,
        "url": notification.url,
        "resolves": list(notification.resolves),
        "count": notification.count,
        "incidents": [
            _incident(report) | (_cleared if notification.kind == "resolved" else _raised)(report)
            for report in notification.reports
        ],
    }


def slack(notification: Notification) -> Any:
    """A message of Slack's incoming webhooks: one section in mrkdwn, and the subject for notifications."""
    text = _text(notification, bold="*", link=lambda url, text: f"<{escaped(url)}|{text}>")
    section = {"type": "section", "text": {"type": "mrkdwn", "text": text}}
    return {"text": escaped(f"[Laggard {notification.site}] {notification.subject}"), "blocks": [section]}


def mattermost(notification: Notification) -> Any:
    """A message of Mattermost's incoming webhooks in Markdown."""
    return {"text": _text(notification, bold="**", link=lambda url, text: f"[{text}]({url})")}


TEMPLATES: Mapping[str, Callable[[Notification], Any]] = {
    "json": json_payload,
    "slack": slack,
    "mattermost": mattermost,
}


def rendered(template: str, notification: Notification) -> bytes:
    """The request's body in ASCII."""
    return json.dumps(TEMPLATES[template](notification), allow_nan=False).encode()


def escaped(text: str) -> str:
    """`text` without the characters that begin links, mentions and entities in mrkdwn."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _code(name: str) -> str:
    """A name as a code span, in which neither markup nor mentions work."""
    return f"`{escaped(plain(name)).replace('`', chr(0x2019))}`"


def _text(notification: Notification, *, bold: str, link: Callable[[str, str], str]) -> str:
    """Heading, one line for each incident as far as they fit, and the link."""
    last = link(notification.url, "Open in Laggard")
    heading = f"{bold}{_heading(notification)}{bold}"
    kept: list[str] = []
    for line in map(_line, notification.reports):
        if len("\n".join((heading, *kept, line, last))) > MAX_TEXT_CHARS - 40:
            break
        kept.append(line)
    more = [f"and {notification.count - len(kept)} more"] if notification.count > len(kept) else []
    return "\n".join((heading, *kept, *more, last))


def _heading(notification: Notification) -> str:
    site = f"Laggard {escaped(notification.site)}"
    if notification.kind == "test":
        return f"{site}: TEST, nothing is wrong"
    state = "cleared" if notification.kind == "resolved" else "raised"
    return f"{site}: alarm {state}" + (
        f" for {notification.count} components" if notification.count > 1 else ""
    )


def _line(report: IncidentReport) -> str:
    lasted = lasting(report.lasted_seconds)
    if not report.comparisons:
        return spaced(f"{_code(report.name)} {report.outcome}, after {lasted}")
    worst = report.worst
    values = f"{figure(worst.observed, worst.unit)}, {worst.against} {figure(worst.reference, worst.unit)}"
    cycle = worst.at_times and f"; {worst.at_times}"
    claim = f"{_code(report.name)} {worst.predicate_over(f'for {lasted}')}"
    return spaced(f"{claim}: {_code(worst.metric)} {values}{cycle}")


def _raised(report: IncidentReport) -> Any:
    return {
        "status": "raised",
        "factor": or_null(report.worst.now),
        "severity": or_null(report.worst.severity),
        "peers": report.peers,
        "comparisons": [_comparison(comparison) for comparison in report.comparisons],
        "causes": [{"function": name, "difference": or_null(amount)} for name, amount in report.causes],
        "next_steps": [{"purpose": purpose, "command": command} for purpose, command in report.commands],
        "located": None
        if report.location is None
        else {
            "level": report.location.level,
            "component": plain(report.location.component, 1000),
            "name": plain(report.location.name),
            "evidence": report.location.evidence,
        },
        "beside": list(report.beside),
        "silence_url": report.silence_url,
        "comments": [
            {
                "comment": plain(comment.comment, 500),
                "ticket": comment.ticket,
                "by": plain(comment.by),
                "at": iso(comment.at),
            }
            for comment in report.comments
        ],
    }


def _cleared(report: IncidentReport) -> Any:
    return {
        "status": "cleared",
        "severity": or_null(report.incident.severity) or None,
        "ended_at": iso(report.at),
        "recovered": report.recovered,
    }


def _incident(report: IncidentReport) -> dict[str, Any]:
    incident = report.incident
    return {
        "component": plain(incident.component, 1000),
        "name": report.name,
        "group": plain(incident.group),
        "level": incident.level,
        "metric": plain(incident.metric),
        "since": iso(incident.since),
        "lasted_seconds": or_null(report.lasted_seconds),
        "url": report.url,
    }


def _comparison(comparison: Comparison) -> Any:
    fields = asdict(comparison) | {"since": iso(comparison.since)}
    return {
        name: or_null(value) if isinstance(value, float) else value
        for name, value in fields.items()
        if name != "worse"
    }
