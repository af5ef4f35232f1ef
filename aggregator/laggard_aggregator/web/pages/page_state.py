"""State for the pages, copied on the event loop and rendered in a thread."""

import math
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast

from laggard_aggregator.alarms.alarms import Alarm, Key
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.alarms.overrides import KINDS, Decision, silencing
from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.ingest.node_view import NodeState, NodeView
from laggard_aggregator.log.journal import Durability
from laggard_aggregator.metrics.registry import worse
from laggard_aggregator.status import formatting
from laggard_aggregator.status.location import Location
from laggard_aggregator.status.node_signs import BesideAlarm
from laggard_aggregator.status.straggler_list import Standing, standings
from laggard_aggregator.status.view import MAX_LAG_SECONDS, Counters, GroupView, Status
from laggard_aggregator.status.window_history import WindowHistory, window_factors

Answer = TypeVar("Answer")

_DEFAULT_STATE = "/var/lib/laggard/state"
KEPT_SECONDS = 5.0
"""Lifetime of values that change without an event: ages of samples, states of nodes."""
RARELY = 50
ACTS = {
    "silence": (
        "Silence",
        "Nobody is notified of it until the silence ends. It is judged and shown as before.",
    ),
    "drain": ("Drain", "Under maintenance: it is left out of every comparison, and its alarms are cleared."),
    "replaced": ("Replaced", "New hardware: its evidence and alarms are dropped with the next window."),
    "comment": ("Comment", "Shown here, among the stragglers, in mails and in laggard status."),
    "end": ("End", "Ends the {} of exactly this target."),
}
"""Decisions of a page's forms, with their headings and effects."""
MAX_WINDOWS_OLD = 3
"""Age of the newest window, in windows, that no schedule explains, besides late messages."""
MAX_SENT_LATE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Now:
    """State of the aggregator at one moment. `nodes`: those that the page is about, None without any.

    `locations`: makes the located causes of the stragglers, once for all pages of a revision. `beside`:
    evidence beside alarms, by component.
    """

    site: str
    version: str
    revision: int
    time: float
    started_at: float
    unready: str
    overdue_seconds: float
    groups: Mapping[str, GroupView]
    judgements: tuple[Judgement, ...]
    alarms: Mapping[Key, Alarm]
    shown: Callable[[str], str]
    decisions: tuple[Decision, ...]
    history: WindowHistory
    node_counts: Mapping[tuple[str, NodeState], int]
    unhealthy: tuple[NodeView, ...]
    nodes: tuple[NodeView, ...] | None
    counters: Counters
    durability: Durability | None
    locations: Callable[[], Mapping[Key, Location]]
    beside: Mapping[str, tuple[BesideAlarm, ...]]

    @property
    def token(self) -> str:
        """Token of this state."""
        return token(self.started_at, self.revision)

    @property
    def shadowed(self) -> tuple[GroupView, ...]:
        """The groups with a shadow detector."""
        return tuple(group for group in self.groups.values() if group.detect.shadow is not None)

    @property
    def stale(self) -> str:
        """Why the page does not show the present, or empty."""
        if self.unready:
            return f"{self.unready}, nothing new arrives"
        ends = [(judged.end, judged.group) for judged in self.judgements]
        newest, group = max(ends, default=(math.nan, ""))
        seconds = self.groups[group].window_seconds if group in self.groups else math.inf
        old = self.time - newest > MAX_WINDOWS_OLD * seconds + MAX_SENT_LATE_SECONDS
        if not (old or self.overdue_seconds > MAX_LAG_SECONDS):
            return ""
        since = f", the newest window ended {formatting.ago(newest, self.time)}" if ends else ""
        return f"windows are not judged{since}"

    def standings(self) -> tuple[Standing, ...]:
        """Standings of the components that matter."""
        return standings(self.judgements, self.alarms, self.shown, self.silenced)

    def silenced(self, *names: str) -> Decision | None:
        """The silence in force for a component with these names."""
        return next(silencing(self.decisions, *names), None) if self.decisions else None

    def decided(self, *names: str) -> tuple[Decision, ...]:
        """Operators' decisions in force for a component or node with these names."""
        return tuple(decision for decision in self.decisions if decision.covers(*names))

    def judgements_of(self, group: str) -> tuple[Judgement, ...]:
        """The latest judgements of a group, one per metric."""
        return tuple(judged for judged in self.judgements if judged.group == group)

    def roles(self) -> tuple[str, ...]:
        """The roles of the peer groups."""
        return tuple(sorted({group.role for group in self.groups.values()} - {""}))

    def has_role(self, role: str) -> bool:
        """Whether a node of this role is known."""
        return any(known == role for known, _ in self.node_counts)

    def role_of(self, group: str) -> str:
        """The role of a group, empty for an unknown one and for one of any role."""
        return self.groups[group].role if group in self.groups else ""

    def worse(self, group: str, metric: str) -> int:
        """The worse side of a metric of a group, as `registry.worse`."""
        return worse(self.groups[group].source, metric) if group in self.groups else 1

    def factors(self, judged: Judgement) -> FloatArray:
        """Times slower of each component in the window of a judgement (C,), as `window_factors`."""
        v = judged.verdicts
        side = self.worse(judged.group, judged.metric)
        return window_factors(v.observed, v.reference, v.severity, side)

    def places(self) -> dict[str, tuple[str, str]]:
        """Group and permanent ID of every component that is compared, by its ID and its current name."""
        places: dict[str, tuple[str, str]] = {}
        for judged in self.judgements:
            for component in judged.components:
                places.setdefault(self.shown(component), (judged.group, component))
                places.setdefault(component, (judged.group, component))
        return places

    def note_of(self, group: str) -> str:
        """Why a group has no verdict by any of its metrics, or empty."""
        return group_note(self.judgements_of(group))


@dataclass(frozen=True, slots=True)
class Acts:
    """Decisions that the reader of a page may make, and the form that is open.

    `enabled`: whether the site has operators; `user`: the reader, if one of them. `path`: the page. `asked`:
    fields of the request, of which `act` chooses the form. `token`: of the form. `state`: the state directory
    that `laggard silence` needs, empty without one.
    """

    enabled: bool
    user: str
    path: str
    asked: Mapping[str, str]
    token: str = ""
    state: str = ""

    def command(self, target: str) -> str:
        """The command that silences `target` on the aggregator's host; empty without a state directory."""
        if not self.state:
            return ""
        state = "" if self.state == _DEFAULT_STATE else f" --state {shlex.quote(self.state)}"
        return f"laggard silence {shlex.quote(target)} --for 2h{state}"

    @property
    def act(self) -> str:
        """The decision whose form is open, or empty."""
        act = self.asked.get("act", "")
        return act if self.enabled and act in ACTS else ""

    @property
    def titles(self) -> Mapping[str, str]:
        """Headings of the decisions."""
        return {act: title for act, (title, _) in ACTS.items()}

    @property
    def effect(self) -> str:
        """Effect of the decision whose form is open."""
        return ACTS[self.act][1].format(self.kind)

    @property
    def kind(self) -> str:
        """The kind of decision that `end` ends."""
        kind = self.asked.get("kind", "")
        return kind if kind in KINDS else ""


def group_note(latest: Iterable[Judgement]) -> str:
    """Why a group has no verdict, by its `latest` judgements, one per metric; empty if one was judged."""
    notes = [judged.verdicts.note for judged in latest]
    return "; ".join(dict.fromkeys(notes)) if all(notes) else ""


def token(started_at: float, revision: int) -> str:
    """Unique token of an aggregator's state, also across runs."""
    return f"{started_at:.3f}-{revision}"


@dataclass(frozen=True, slots=True)
class _NodesNow:
    """The nodes at one time; `all`: None where they were not asked for."""

    counts: Mapping[tuple[str, NodeState], int]
    unhealthy: tuple[NodeView, ...]
    all: tuple[NodeView, ...] | None = None


def _health(view: Status) -> _NodesNow:
    return _NodesNow(view.node_counts(), view.unhealthy_nodes())


def _all_nodes(view: Status) -> _NodesNow:
    nodes = view.nodes()
    counts = Counter((node.role, node.state) for node in nodes)
    return _NodesNow(counts, tuple(node for node in nodes if not node.healthy), nodes)


class StateReader:
    """Copies the state from a view, on the event loop; expensive parts are cached.

    The list of all nodes, a few microseconds each, is kept for KEPT_SECONDS or RARELY times the CPU time that
    it took, so that pages of a very large site do not block the event loop.
    """

    def __init__(self, view: Status) -> None:
        self._view = view
        self._kept: dict[str, tuple[float, float, Any]] = {}  # end and CPU time of reading, and its result
        self._locations: tuple[int, Callable[[], Mapping[Key, Location]]] = (-1, dict)

    def now(
        self, *, nodes: bool = False, node: str | None = None, least_seconds: float = KEPT_SECONDS
    ) -> Now:
        """Current state of the aggregator, with all nodes, or the present state of `node`, if asked for.

        `least_seconds`: age up to which expensive parts are reused in any case.
        """
        view = self._view
        alarms = view.alarms()
        known = view.node(node) if node is not None else None
        if nodes:
            kept = self._seldom("nodes", lambda: _all_nodes(view), least_seconds)
        else:
            kept = self._seldom("health", lambda: _health(view), least_seconds)
        return Now(
            site=view.site,
            version=view.version,
            revision=view.revision,
            time=view.now,
            started_at=view.started_at,
            unready=view.unready,
            overdue_seconds=view.overdue_seconds,
            groups={group.name: group for group in view.groups()},
            judgements=view.judgements(),
            alarms=alarms,
            shown=view.shown,
            decisions=view.decisions(),
            history=view.history.frozen(),
            node_counts=kept.counts,
            unhealthy=kept.unhealthy,
            nodes=kept.all if nodes else (known,) if known else None,
            counters=view.counters(),
            durability=view.durability(),
            locations=self._located(),
            beside=view.beside({component for _, component, _ in alarms}),
        )

    def _located(self) -> Callable[[], Mapping[Key, Location]]:
        """Makes the located causes of this revision, when first called, in the page's thread."""
        view = self._view
        if self._locations[0] != view.revision:
            self._locations = (view.revision, cache(view.locating()))
        return self._locations[1]

    def _seldom(self, part: str, ask: Callable[[], Answer], least_seconds: float = KEPT_SECONDS) -> Answer:
        ended, took, answer = self._kept.get(part, (-math.inf, 0.0, None))
        if time.monotonic() >= ended + max(least_seconds, RARELY * took):
            begun = time.thread_time()  # not what the loop's thread waited for other processes
            answer = ask()
            self._kept[part] = (time.monotonic(), time.thread_time() - begun, answer)
        return cast(Answer, answer)
