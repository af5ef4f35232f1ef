"""Slow, obvious twin of `jobs/access/queries.py`: a filter over a list of rows."""

from typing import Any

from laggard_aggregator.jobs.access.filter import JobSelection
from laggard_aggregator.jobs.access.principals import Principal, Role

Row = dict[str, Any]


def visible(who: Principal, row: Row) -> bool:
    """Whether `who` may see a job."""
    if who.role in (Role.SUPPORT, Role.ADMIN):
        return True
    if who.role is Role.API:
        project = f"jobs:read:project={row['account']}"
        own = f"jobs:read:user={row['user']}"
        return bool(
            who.scopes & {"jobs:read:all", project if row["account"] else "", own if row["user"] else ""}
        )
    if who.name and row["user"] == who.name:
        return True
    return who.role is Role.MANAGER and bool(row["account"]) and row["account"] in who.projects


def _findings(row: Row) -> list[str]:
    amplified = ["amplification"] if (row["amplification"] or 0.0) > 1.5 else []
    return [row["verdict"], *row["kinds"], *amplified]


def selected(who: Principal, wanted: JobSelection, rows: list[Row]) -> list[str]:
    """Keys of the jobs that a list has, in no order; rows have lists `nodes`, `components`, `kinds`."""
    found = []
    for row in rows:
        at = row["submit"] if row["start"] is None else row["start"]
        size = row["node_count"]
        end = float("inf") if row["end"] is None else row["end"]
        conditions = [
            visible(who, row),
            wanted.user in ("", row["user"]),
            wanted.project in ("", row["account"]),
            wanted.application in ("", row["application"]),
            wanted.state.upper() in ("", row["state"]),
            wanted.min_nodes is None or (size is not None and size >= wanted.min_nodes),
            wanted.max_nodes is None or (size is not None and size <= wanted.max_nodes),
            wanted.after is None or end >= wanted.after,
            wanted.before is None or at < wanted.before,
            not wanted.node or wanted.node in row["nodes"],
            not wanted.component or wanted.component in row["components"],
            not wanted.finding or wanted.finding in _findings(row),
        ]
        if all(conditions):
            found.append(row["job_key"])
    return found
