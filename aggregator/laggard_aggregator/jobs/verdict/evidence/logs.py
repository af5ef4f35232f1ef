"""Findings of a job's Darshan logs as evidence: the same as of `laggard mine`, of which they are."""

from collections.abc import Iterable, Mapping
from typing import Any

from laggard_aggregator.jobs.verdict.causes import JobFinding


def log_findings(rows: Iterable[Mapping[str, Any]]) -> list[JobFinding]:
    """Findings among rows of `job_logs`, those that explain most of the critical time first."""
    return [
        JobFinding(
            row["kind"],
            row["component"] or "",
            row["factor"],
            row["share"],
            row["text"].rstrip("."),
            row["advice"].rstrip("."),
        )
        for row in rows
        if row["record"] == "finding"
    ]
