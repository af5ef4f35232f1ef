"""The page at `/`: slow components and the health of the fleet at a glance."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from laggard_aggregator.status import formatting
from laggard_aggregator.status.view import GroupView, failing
from laggard_aggregator.web.pages.charts import SLOW, bucketed, drawing, heat, sparkline
from laggard_aggregator.web.pages.page_state import Now, paged
from laggard_aggregator.web.pages.straggler_rows import NextSteps, Slow, slow, watched

SLOW_A_PAGE = 20
GROUPS_SHOWN = 12
WATCHED_SHOWN = 10
MAP_ROWS = 24


def overview(now: Now, page: int) -> dict[str, Any]:
    """Values of the template."""
    found, steps = slow(now), NextSteps(now)
    maybe = watched(now)
    return {
        "headline": headline(now, found),
        "slow": paged(
            found, page, SLOW_A_PAGE, lambda each: (each, sparkline(each.first.course), steps.on(each)[0])
        ),
        "watched": maybe[:WATCHED_SHOWN],
        "watched_total": len(maybe),
        "tiles": tiles(now, found),
        "groups": [group_map(now, group, found) for group in maps(now, found)[:GROUPS_SHOWN]],
    }


def headline(now: Now, found: Sequence[Slow]) -> str:
    """The headline sentence."""
    compared = sum(group.live for group in now.groups.values())
    if found:
        first, others = found[0], len(found) - 1
        since = f" since {formatting.moment(first.since)[:16]} UTC" if formatting.iso(first.since) else ""
        more = f"; {formatting.counted(others, 'more straggler')}" if others else ""
        return f"{first.name} is {first.claim}{since}{more}"
    if not now.groups:
        return "Nothing is compared yet: no component with peers has sent data"
    if all(judged.verdicts.note for judged in now.judgements):
        return "Nothing was judged yet" if not now.judgements else "No group could be judged"
    return f"No stragglers: {formatting.counted(compared, 'component')} behave like their peers"


def maps(now: Now, found: Sequence[Slow]) -> list[GroupView]:
    """The groups by urgency: stragglers first, then those without a verdict."""
    slow_in = slow_by_group(found)
    noted = {judged.group for judged in now.judgements if judged.verdicts.note}

    def rank(group: GroupView) -> tuple[int, bool, bool, int, str]:
        known = group.live + group.silent
        return (-slow_in[group.name], group.name not in noted, not group.silent, -known, group.name)

    return sorted(now.groups.values(), key=rank)


def slow_by_group(found: Sequence[Slow]) -> Counter[str]:
    """Number of slow components by group."""
    return Counter(name for each in found for name in {e.standing.group for e in each.evidence})


def group_map(now: Now, group: GroupView, found: Sequence[Slow], rows: int = MAP_ROWS) -> dict[str, Any]:
    """A group's heat map; with more components than rows, adjacent names share a row."""
    whole = heat([now.history.columns(group.name, metric) for metric in group.metrics])
    anomalous = int((whole.levels >= SLOW).any(axis=1).sum())
    label = (
        f"{formatting.counted(len(whole.components), 'component')} over "
        f"{formatting.counted(len(whole.ends), 'window')}: "
        f"{anomalous} with anomalous windows"
    )
    return {
        "view": group,
        "note": now.note_of(group.name) if now.judgements_of(group.name) else "no window has closed yet",
        "slow": slow_by_group(found)[group.name],
        "picture": drawing(bucketed(whole.levels, rows), label, "map"),
        "heat": whole,
    }


def troubles(now: Now) -> tuple[str, ...]:
    """Problems of Laggard itself, as text."""
    c, durability = now.counters, now.durability
    found = [
        (not now.ready, "not connected to the broker"),
        *((True, f"the {problem}") for problem in failing(c, durability).values()),
        (
            c.queue_dropped > 0,
            f"{formatting.counted(c.queue_dropped, 'message')} dropped: ingest does not keep up",
        ),
        (c.archive_dropped > 0, f"{formatting.counted(c.archive_dropped, 'record')} missing in the archive"),
        (c.gaps > 0, f"{formatting.counted(c.gaps, 'message')} never came"),
    ]
    return tuple(text for is_so, text in found if is_so)


def tiles(now: Now, found: Sequence[Slow]) -> list[tuple[str, str, str, str, str]]:
    """The health of the fleet: title, value, detail, state (`good`, `warn`, `bad`) and link of each tile."""
    alarms = formatting.counted(sum(each.alarm for each in found), "alarm")
    live = sum(group.live for group in now.groups.values())
    silent = sum(group.silent for group in now.groups.values())
    judged = {each.group for each in now.judgements}
    unjudged = sum(name not in judged or bool(now.note_of(name)) for name in now.groups)
    nodes = sum(now.node_counts.values())
    up = sum(count for (_, state), count in now.node_counts.items() if state == "up")
    gone = sum(count for (_, state), count in now.node_counts.items() if state in ("silent", "down"))
    unhealthy = len(now.unhealthy)
    wrong = troubles(now)
    latest = max((each.end for each in now.judgements), default=np.nan)
    told = f"last window ended {formatting.ago(latest, now.time)}" if now.judgements else "no window yet"
    return [
        (
            "Stragglers",
            f"{len(found):,}",
            f"{alarms} standing" if found else "none",
            "bad" if found else "good",
            "#stragglers",
        ),
        (
            "Components compared",
            f"{live:,}",
            f"{silent:,} silent" if silent else "all with data",
            "warn" if silent else "good",
            "/groups",
        ),
        (
            "Peer groups",
            f"{len(now.groups):,}",
            f"{unjudged} without a verdict" if unjudged else "all judged",
            "warn" if unjudged else "good",
            "/groups",
        ),
        (
            "Nodes up",
            f"{up:,} of {nodes:,}",
            f"{formatting.counted(unhealthy, 'node')} unhealthy" if unhealthy else "all healthy",
            "bad" if gone else "warn" if unhealthy else "good",
            "/nodes",
        ),
        (
            "Laggard itself",
            "unhealthy" if wrong else "healthy",
            "; ".join(wrong) or told,
            "bad" if not now.ready else "warn" if wrong else "good",
            "/nodes#laggard",
        ),
    ]
