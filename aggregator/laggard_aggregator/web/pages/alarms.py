"""The page of alarms: one row for each, from raised to cleared."""

import math
from collections.abc import Sequence

from laggard_aggregator.web.pages.alarm_log import AlarmEpisode
from laggard_aggregator.web.pages.page_state import Filter, Now, PageColumn, Query, Table


def alarms(now: Now, rows: Sequence[AlarmEpisode], query: Query) -> Table[AlarmEpisode]:
    """The table of alarms, one row an episode."""

    def states(each: AlarmEpisode) -> tuple[str, ...]:
        return ("active" if each.active else "cleared" if math.isfinite(each.cleared_at) else "not recorded",)

    columns = (
        PageColumn[AlarmEpisode]("name", "Component", lambda each: now.shown(each.component)),
        PageColumn[AlarmEpisode]("component", "", lambda each: each.component),
        PageColumn[AlarmEpisode]("level", "", lambda each: each.level),
        PageColumn[AlarmEpisode]("group", "Group", lambda each: each.group),
        PageColumn[AlarmEpisode]("metric", "Metric", lambda each: each.metric),
        PageColumn[AlarmEpisode]("raised_at", "Raised", lambda each: each.raised_at, is_time=True),
        PageColumn[AlarmEpisode]("cleared_at", "Cleared", lambda each: each.cleared_at, is_time=True),
        PageColumn[AlarmEpisode](
            "duration_seconds", "Lasted", lambda each: each.lasted(now.time), right=True
        ),
        PageColumn[AlarmEpisode]("since", "Slow since", lambda each: each.since, is_time=True),
        PageColumn[AlarmEpisode]("severity", "", lambda each: each.severity),
        PageColumn[AlarmEpisode]("worst_severity", "At worst", lambda each: each.worst_severity, right=True),
        PageColumn[AlarmEpisode]("state", "", lambda each: states(each)[0]),
    )
    filters = (
        Filter[AlarmEpisode]("role", "Role", lambda each: (now.role_of(each.group),), now.roles()),
        Filter[AlarmEpisode]("group", "Group", lambda each: each.group),
        Filter[AlarmEpisode]("factor", "At worst at least", lambda each: each.worst_severity, is_number=True),
        Filter[AlarmEpisode]("state", "State", states, ("active", "cleared", "not recorded")),
    )
    return Table("alarms", columns, rows, query, filters=filters, keep=("from", "to"))
