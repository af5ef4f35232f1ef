"""The page of alarms: one row for each, from raised to cleared, and the operators' decisions in force."""

from collections.abc import Sequence
from typing import Any

from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.web.pages.alarm_log import AlarmEpisode, alarm_table
from laggard_aggregator.web.pages.page_state import Now
from laggard_aggregator.web.pages.tables import PageColumn, PageTable, Query

DECISIONS_A_PAGE = 200


def alarms(now: Now, rows: Sequence[AlarmEpisode], query: Query) -> dict[str, Any]:
    """Values of the template."""
    decisions = _decisions(now, query)
    return {"table": alarm_table(now, rows, query), "tables": [decisions], "decisions": decisions}


def _decisions(now: Now, query: Query) -> PageTable[Decision]:
    """The decisions in force, newest first."""
    column = PageColumn[Decision]
    columns = (
        column("target", "Target", lambda decision: decision.target),
        column("kind", "Decision", lambda decision: decision.kind),
        column("at", "Since", lambda decision: decision.at, is_time=True),
        column("until", "Until", lambda decision: decision.until, is_time=True),
        column("by", "By", lambda decision: decision.by),
        column("comment", "Reason", lambda decision: decision.comment),
        column("ticket", "", lambda decision: decision.ticket),
    )
    keep = ("sort", "role", "group", "factor", "state", "from", "to")
    return PageTable(
        "decisions", columns, now.decisions[::-1], query, keep=keep, size=DECISIONS_A_PAGE, is_first=False
    )
