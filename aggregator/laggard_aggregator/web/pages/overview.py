"""The page at `/`: slow components and the health of the fleet at a glance."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from laggard_aggregator.status import formatting
from laggard_aggregator.status.straggler_list import Standing
from laggard_aggregator.status.view import GroupView
from laggard_aggregator.web.pages.charts import SLOW, Heat, bucketed, drawing, heat, sparkline
from laggard_aggregator.web.pages.page_state import Now, Page, paged
from laggard_aggregator.web.pages.straggler_rows import NextSteps, Slow, slow, watched

SLOW_A_PAGE = 20
GROUPS_SHOWN = 12
WATCHED_SHOWN = 10
MAP_ROWS = 24


@dataclass(frozen=True, slots=True)
class Tile:
    """A status tile: `state` is `good`, `warn` or `bad`, `mark` the same without colour."""

    title: str
    value: str
    detail: str
    state: str
    url: str = ""

    @property
    def mark(self) -> str:
        """The state as a symbol with a text alternative."""
        return {"good": "✓", "warn": "!", "bad": "✕"}[self.state]


@dataclass(frozen=True, slots=True)
class GroupMap:
    """A peer group and its heat map."""

    view: GroupView
    note: str
    slow: int
    picture: Markup
    heat: Heat

    @property
    def components(self) -> int:
        """Number of components, live or silent."""
        return self.view.live + self.view.silent


@dataclass(frozen=True, slots=True)
class Overview:
    """Contents of the page."""

    headline: str
    slow: Page[tuple[Slow, Markup, str]]
    watched: tuple[Standing, ...]
    watched_more: int
    tiles: tuple[Tile, ...]
    groups: tuple[GroupMap, ...]
    groups_total: int


def overview(now: Now, page: int) -> Overview:
    """Builds the page's contents."""
    found = slow(now)
    chosen = paged(found, page, SLOW_A_PAGE)
    steps = NextSteps(now)
    rows = tuple((each, sparkline(each.first.course), steps.on(each).hint) for each in chosen.items)
    maybe = watched(now)
    groups = maps(now, found)
    return Overview(
        headline=headline(now, found),
        slow=Page(rows, chosen.number, chosen.size, chosen.total),
        watched=maybe[:WATCHED_SHOWN],
        watched_more=max(len(maybe) - WATCHED_SHOWN, 0),
        tiles=tiles(now, found),
        groups=tuple(group_map(now, group, found) for group in groups[:GROUPS_SHOWN]),
        groups_total=len(groups),
    )


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


def maps(now: Now, found: Sequence[Slow]) -> tuple[GroupView, ...]:
    """The groups by urgency: stragglers first, then those without a verdict."""
    slow_in = slow_by_group(found)
    noted = {judged.group for judged in now.judgements if judged.verdicts.note}

    def rank(group: GroupView) -> tuple[int, bool, bool, int, str]:
        known = group.live + group.silent
        return (-slow_in.get(group.name, 0), group.name not in noted, not group.silent, -known, group.name)

    return tuple(sorted(now.groups.values(), key=rank))


def slow_by_group(found: Sequence[Slow]) -> dict[str, int]:
    """Number of slow components by group."""
    counts: dict[str, int] = {}
    for each in found:
        for name in {evidence.standing.group for evidence in each.evidence}:
            counts[name] = counts.get(name, 0) + 1
    return counts


def group_map(now: Now, group: GroupView, found: Sequence[Slow], rows: int = MAP_ROWS) -> GroupMap:
    """A group's heat map; with more components than rows, adjacent names share a row."""
    whole = heat([now.history.columns(group.name, metric) for metric in group.metrics])
    anomalous = int((whole.levels >= SLOW).any(axis=1).sum())
    label = (
        f"{formatting.counted(len(whole.components), 'component')} over "
        f"{formatting.counted(len(whole.ends), 'window')}: "
        f"{anomalous} with anomalous windows"
    )
    return GroupMap(
        view=group,
        note=note_of(now, group.name),
        slow=slow_by_group(found).get(group.name, 0),
        picture=drawing(bucketed(whole.levels, rows), label, "map"),
        heat=whole,
    )


def note_of(now: Now, group: str) -> str:
    """Reason for a missing verdict of a group, empty when it has one."""
    latest = now.judgements_of(group)
    if not latest:
        return "no window has closed yet"
    return "; ".join(dict.fromkeys(judged.verdicts.note for judged in latest if judged.verdicts.note))


def tiles(now: Now, found: Sequence[Slow]) -> tuple[Tile, ...]:
    """The health of the fleet."""
    return (_slow_tile(found), _component_tile(now), _group_tile(now), _node_tile(now), _own_tile(now))


def troubles(now: Now) -> tuple[str, ...]:
    """Problems of Laggard itself, as text."""
    c, durability = now.counters, now.durability
    found = [
        (not now.ready, "not connected to the broker"),
        (durability is not None and not durability.whole, "the journal cannot be written"),
        (
            c.queue_dropped > 0,
            f"{formatting.counted(c.queue_dropped, 'message')} dropped: ingest does not keep up",
        ),
        (c.archive_dropped > 0, f"{formatting.counted(c.archive_dropped, 'record')} missing in the archive"),
        (c.window_lag_seconds > 60, f"windows are judged {formatting.lasting(c.window_lag_seconds)} late"),
        (c.gaps > 0, f"{formatting.counted(c.gaps, 'message')} never came"),
    ]
    return tuple(text for is_so, text in found if is_so)


def _slow_tile(found: Sequence[Slow]) -> Tile:
    alarms = sum(each.alarm for each in found)
    detail = f"{formatting.counted(alarms, 'alarm')} standing" if found else "none"
    return Tile("Stragglers", f"{len(found):,}", detail, "bad" if found else "good", "#stragglers")


def _component_tile(now: Now) -> Tile:
    live = sum(group.live for group in now.groups.values())
    silent = sum(group.silent for group in now.groups.values())
    detail = f"{silent:,} silent" if silent else "all with data"
    return Tile("Components compared", f"{live:,}", detail, "warn" if silent else "good", "/groups")


def _group_tile(now: Now) -> Tile:
    unjudged = sum(bool(note_of(now, name)) for name in now.groups)
    detail = f"{unjudged} without a verdict" if unjudged else "all judged"
    return Tile("Peer groups", f"{len(now.groups):,}", detail, "warn" if unjudged else "good", "/groups")


def _node_tile(now: Now) -> Tile:
    total = sum(now.node_counts.values())
    up = sum(count for (_, state), count in now.node_counts.items() if state == "up")
    gone = sum(count for (_, state), count in now.node_counts.items() if state in ("silent", "down"))
    unhealthy = len(now.unhealthy)
    detail = f"{formatting.counted(unhealthy, 'node')} unhealthy" if unhealthy else "all healthy"
    state = "bad" if gone else "warn" if unhealthy else "good"
    return Tile("Nodes up", f"{up:,} of {total:,}", detail, state, "/nodes")


def _own_tile(now: Now) -> Tile:
    wrong = troubles(now)
    latest = max((judged.end for judged in now.judgements), default=np.nan)
    told = f"last window ended {formatting.ago(latest, now.time)}" if now.judgements else "no window yet"
    detail = "; ".join(wrong) if wrong else told
    state = "bad" if not now.ready else "warn" if wrong else "good"
    return Tile("Laggard itself", "unhealthy" if wrong else "healthy", detail, state, "/nodes#laggard")
