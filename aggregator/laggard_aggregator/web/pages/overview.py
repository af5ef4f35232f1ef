"""The page at `/`: slow components and the health of the fleet at a glance."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from laggard_aggregator.alarms.alarms import AlarmEvent
from laggard_aggregator.detect.interface import TOO_FEW
from laggard_aggregator.metrics.registry import worse
from laggard_aggregator.status import formatting, urls
from laggard_aggregator.status.next_steps import Command
from laggard_aggregator.status.view import GroupView, failing
from laggard_aggregator.web.pages.charts import SLOW, Heat, drawing, heat
from laggard_aggregator.web.pages.page_state import Now
from laggard_aggregator.web.pages.straggler_rows import Slow, by_grade, slow, stragglers, watched
from laggard_aggregator.web.pages.tables import Query

SLIGHT_SHOWN = 50
GROUPS_SHOWN = 12
WATCHED_SHOWN = 10
ENDED_SECONDS = 86_400.0
"""Age up to which the last alarm is told where nothing is slow."""
MAP_ROWS, CALM_ROWS = 8, 2
"""Rows of a group's map: the worst components, and as many of a group without anomalous windows."""


def overview(now: Now, query: Query) -> dict[str, Any]:
    """Values of the template."""
    all_slow = slow(now)
    marked, slight = by_grade(all_slow)
    maybe = watched(now)
    return {
        "headline": headline(now, all_slow),
        "title": " and ".join(
            formatting.counted(len(some), name)
            for some, name in ((marked, "straggler"), (slight, "slight straggler"))
            if some
        )
        or "No stragglers",
        "ended": last_ended(now) if not all_slow else None,
        "next_step": next_step(now),
        "table": stragglers(now, all_slow, query),
        "slight": slight[:SLIGHT_SHOWN],
        "slight_total": len(slight),
        "watched": maybe[:WATCHED_SHOWN],
        "watched_total": len(maybe),
        "tiles": tiles(now, all_slow),
        "groups": [group_map(now, group, all_slow) for group in maps(now, all_slow)[:GROUPS_SHOWN]],
    }


class Headline(NamedTuple):
    """A sentence: `text`, the time `since` unless it is NaN, `more`."""

    text: str
    since: float = math.nan
    more: str = ""


def headline(now: Now, stragglers: Sequence[Slow]) -> Headline:
    """The headline sentence."""
    marked, slight = by_grade(stragglers)
    few = f"; {formatting.counted(len(slight), 'slight straggler')}" if slight else ""
    if marked:
        first, others = marked[0], len(marked) - 1
        more = f"; {formatting.counted(others, 'more straggler')}" if others else ""
        before, after = first.claim
        verb = "has been" if formatting.iso(first.since) else "is"
        return Headline(f"{first.name} {verb} {before}", first.since, after + more + few)
    if slight:
        least = formatting.factor(formatting.GRADES["moderate"])
        return Headline(f"No component is {least} slower than its peers{few}")
    if not now.groups:
        why = "no component that has peers has sent data" if now.node_counts else "no agent has reported"
        return Headline(f"Nothing is compared yet: {why}")
    if not has_verdicts(now):
        return Headline("Nothing was judged yet" if not now.judgements else "No group could be judged")
    compared = formatting.counted(compared_now(now), "component")
    return Headline(f"No stragglers: {compared} behave like their peers")


def last_ended(now: Now) -> AlarmEvent | None:
    """The clearing of the last alarm, if it was within a day."""
    cleared = (event for event in reversed(now.history.transitions) if event.kind == "cleared")
    last = next(cleared, None)
    return last if last is not None and now.time - last.at < ENDED_SECONDS else None


def compared_now(now: Now) -> int:
    """Components with data in the groups that were judged, by any of their metrics."""
    judged = {judged.group for judged in now.judgements if not judged.verdicts.note}
    return sum(group.live for name, group in now.groups.items() if name in judged)


def has_verdicts(now: Now) -> bool:
    """Whether any group was judged."""
    return not all(judged.verdicts.note for judged in now.judgements)


def next_step(now: Now) -> tuple[str, tuple[Command, ...]] | None:
    """How to get to the first verdicts: a sentence and commands; None once a window was judged."""
    if now.judgements:
        return None
    if not now.node_counts:
        return (
            "No agent has reported. Start one on each node, with the broker's address and this site's name:",
            (
                ("on a node: reads each source once and prints it", "laggard-agent --once"),
                ("on a node: errors in its configuration", "laggard-agent --check-config"),
                ("on a node: starts it now and at boot", "systemctl enable --now laggard-agent"),
                ("here: the nodes that have reported", "laggard status"),
            ),
        )
    if not now.groups:
        return (
            "Agents have reported, but no component has peers yet. Components of one kind are compared once "
            "there are four of them; groups of your own are [[group]] in the aggregator's configuration.",
            (("nodes and groups", "laggard status"),),
        )
    seconds = min(group.window_seconds for group in now.groups.values())
    return (
        f"Agents report. The first window closes {formatting.lasting(seconds)} after the first samples.",
        (("nodes and groups", "laggard status"),),
    )


def maps(now: Now, stragglers: Sequence[Slow]) -> list[GroupView]:
    """The groups by urgency: stragglers first, then those without a verdict."""
    slow_in = slow_by_group(stragglers)

    def rank(group: GroupView) -> tuple[int, bool, bool, int, str]:
        known = group.live + group.silent
        return (
            -slow_in[group.name],
            now.note_of(group.name) in ("", TOO_FEW),
            not group.silent,
            -known,
            group.name,
        )

    return sorted(now.groups.values(), key=rank)


def slow_by_group(stragglers: Sequence[Slow]) -> Counter[str]:
    """Number of slow components by group."""
    return Counter(name for s in stragglers for name in {e.standing.group for e in s.evidence})


def group_map(now: Now, group: GroupView, stragglers: Sequence[Slow]) -> dict[str, Any]:
    """A group with a heat map of its worst components and the count of the others."""
    whole = heat(
        [(now.history.columns(group.name, metric), worse(group.source, metric)) for metric in group.metrics]
    )
    anomalous = int((whole.anomalous > 0).sum())
    rows = whole.by_severity()[: min(max(anomalous, CALM_ROWS), MAP_ROWS)].tolist()
    more = max(anomalous - len(rows), 0)
    return {
        "view": group,
        "note": note(now, group.name),
        "small": note(now, group.name) == TOO_FEW,
        "slow": slow_by_group(stragglers)[group.name],
        "heat": whole,
        "rows": [map_row(now, group.name, whole, at) for at in rows],
        "more": more,
        "calm": len(whole.components) - len(rows) - more,
    }


def note(now: Now, group: str) -> str:
    """Why a group has no verdict, or empty."""
    return now.note_of(group) if now.judgements_of(group) else "no window has closed yet"


def map_row(now: Now, group: str, whole: Heat, at: int, metric: str = "") -> dict[str, Any]:
    """One component of a heat map."""
    component, levels = whole.components[at], whole.levels[at : at + 1]
    label = f"anomalous in {whole.anomalous[at]} of {formatting.counted(int(whole.windows[at]), 'window')}"
    if (levels >= SLOW).any():
        label += f", last at {formatting.moment(whole.ends[np.flatnonzero(levels[0] >= SLOW)[-1]])} UTC"
    return {
        "component": component,
        "name": now.shown(component),
        "url": urls.component(group, component, metric),
        "picture": drawing(levels, label, "strip"),
        "latest": float(whole.latest[at]),
        "worst": float(whole.worst[at]),
        "anomalous": int(whole.anomalous[at]),
        "windows": int(whole.windows[at]),
    }


def troubles(now: Now) -> tuple[str, ...]:
    """Problems of Laggard itself, as text."""
    c, durability = now.counters, now.durability
    problems = [now.unready, *(f"the {problem}" for problem in failing(c, durability).values())]
    for count, noun, what in (
        (c.queue_dropped, "message", "dropped: ingest does not keep up"),
        (c.archive_dropped, "record", "missing in the archive"),
        (c.gaps, "message", "never came"),
    ):
        problems.append(f"{formatting.counted(count, noun)} {what}" if count else "")
    return tuple(filter(None, problems))


class Tile(NamedTuple):
    """`state`: `good`, `warn`, `bad`, or `none` while nothing is known of it."""

    title: str
    value: str
    detail: str
    state: str
    url: str


def tiles(now: Now, stragglers: Sequence[Slow]) -> list[Tile]:
    """The health of the fleet."""
    return [_straggler_tile(now, stragglers), *_group_tiles(now), _node_tile(now), _own_tile(now)]


def _straggler_tile(now: Now, stragglers: Sequence[Slow]) -> Tile:
    marked, slight = by_grade(stragglers)
    alarms = sum(straggler.alarm for straggler in stragglers)
    details = (
        (alarms, f"{alarms:,} with an alarm"),
        (slight, f"{len(slight):,} slight besides"),
        (not stragglers, "none" if has_verdicts(now) else "nothing judged yet"),
    )
    return Tile(
        "Stragglers",
        f"{len(marked):,}" if has_verdicts(now) or stragglers else formatting.DASH,
        _listed(details),
        "bad" if marked else "warn" if slight else "good" if has_verdicts(now) else "none",
        "#stragglers",
    )


def _group_tiles(now: Now) -> tuple[Tile, Tile]:
    """Components that are compared, and their groups."""
    live = sum(group.live for group in now.groups.values())
    silent = sum(group.silent for group in now.groups.values())
    judged = {judgement.group for judgement in now.judgements}
    notes = [now.note_of(name) if name in judged else "no window yet" for name in now.groups]
    small, unjudged = notes.count(TOO_FEW), sum(note not in ("", TOO_FEW) for note in notes)
    compared = compared_now(now) if has_verdicts(now) else live
    alone = f"{live - compared:,} more with too few peers" if small and compared < live else ""
    coverage = "all with data" if has_verdicts(now) else "none compared yet"
    details = (
        (unjudged, f"{unjudged} without a verdict"),
        (small, f"{small} with too few members to compare"),
        (now.groups and not unjudged + small, "all judged"),
        (not now.groups, "none yet"),
    )
    return (
        Tile(
            "Components compared" if has_verdicts(now) else "Components with data",
            f"{compared:,}",
            f"{silent:,} silent" if silent else alone or coverage,
            "warn" if silent else "good" if has_verdicts(now) else "none",
            "/groups",
        ),
        Tile(
            "Peer groups",
            f"{len(now.groups):,}",
            _listed(details),
            "none" if not now.judgements else "warn" if unjudged else "good",
            "/groups",
        ),
    )


def _node_tile(now: Now) -> Tile:
    counts, unhealthy = now.node_counts, len(now.unhealthy)
    nodes = sum(counts.values())
    up = sum(count for (_, state), count in counts.items() if state == "up")
    gone = sum(count for (_, state), count in counts.items() if state in ("silent", "down"))
    healthy = "all healthy" if nodes else "no agent has reported"
    return Tile(
        "Nodes up",
        f"{up:,} of {nodes:,}",
        f"{formatting.counted(unhealthy, 'node')} unhealthy" if unhealthy else healthy,
        "bad" if gone else "warn" if unhealthy else "good" if nodes else "none",
        "/nodes",
    )


def _own_tile(now: Now) -> Tile:
    wrong = troubles(now)
    latest = max((judged.end for judged in now.judgements), default=np.nan)
    ended = f"last window ended {formatting.ago(latest, now.time)}" if now.judgements else "no window yet"
    return Tile(
        "Laggard itself",
        "unhealthy" if wrong else "healthy",
        "; ".join(wrong) or ended,
        "bad" if now.unready else "warn" if wrong else "good" if now.judgements else "none",
        "/nodes#laggard",
    )


def _listed(details: Iterable[tuple[object, str]]) -> str:
    """The texts whose conditions hold."""
    return ", ".join(text for holds, text in details if holds)
