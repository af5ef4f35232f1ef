"""The last revision of each job, row after row: slow and obvious."""

from typing import Any

PENDING = {"PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
UNFINISHED = {
    *("RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT"),
    *("POWER_UP_NODE", "EXPEDITING", "UPDATE_DB"),
}


def stage(row: dict[str, Any]) -> int:
    """How far a record is: 0 pending, 1 running, 2 over at an unknown time, 3 over."""
    if row["state"] in PENDING:
        return 0
    if row["state"] in UNFINISHED:
        return 1
    return 2 if row["end"] is None else 3


def last(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By key the last of its records."""

    def order(row: dict[str, Any]) -> tuple[Any, ...]:
        return stage(row), row["modified"] or 0, row["revision_at"], row["source"] == "sacct"

    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        known = found.get(row["job_key"])
        if known is None or order(row) > order(known):
            found[row["job_key"]] = row
    return found
