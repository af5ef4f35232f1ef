"""What the pages are made of: taken from the view on the loop, frozen, and rendered in a thread."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from laggard_aggregator.alarms.alarms import Alarm, Key
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.status.straggler_list import Standing, standings
from laggard_aggregator.status.view import Counters, Durability, GroupView, NodeState, NodeView, View
from laggard_aggregator.status.window_history import History

Answer = TypeVar("Answer")

KEPT_SECONDS = 5.0
"""How long what nobody announces may be behind: ages of samples, states of nodes."""
RARELY = 50


@dataclass(frozen=True, slots=True)
class Now:
    """The aggregator at a moment. `nodes`: of pages about nodes only, else None."""

    site: str
    version: str
    revision: int
    time: float
    started_at: float
    ready: bool
    groups: Mapping[str, GroupView]
    judgements: tuple[Judgement, ...]
    alarms: Mapping[Key, Alarm]
    shown: Callable[[str], str]
    decisions: tuple[Decision, ...]
    history: History
    node_counts: Mapping[tuple[str, NodeState], int]
    unwell: tuple[NodeView, ...]
    nodes: tuple[NodeView, ...] | None
    counters: Counters
    durability: Durability | None

    @property
    def token(self) -> str:
        """What tells this state from any other, of an earlier run, too."""
        return token(self.started_at, self.revision)

    def standings(self) -> tuple[Standing, ...]:
        """What is said of the components that matter."""
        return standings(self.judgements, self.alarms, self.shown, self.silenced)

    def silenced(self, *names: str) -> Decision | None:
        """The decision by which nobody is told of a component of these names."""
        return next(iter(self.decided(*names)), None)

    def decided(self, *names: str) -> tuple[Decision, ...]:
        """What operators decided about a component or node of these names, and still stands."""
        return tuple(each for each in self.decisions if each.covers(*names))

    def judgements_of(self, group: str) -> tuple[Judgement, ...]:
        """The latest judgements of a group, one a metric."""
        return tuple(judged for judged in self.judgements if judged.group == group)


def token(started_at: float, revision: int) -> str:
    """What tells the state of an aggregator from any other."""
    return f"{started_at:.3f}-{revision}"


class Taking:
    """Takes it from a view, on the loop; what takes long to be told is asked for seldom.

    That is what is said of all nodes, a few microseconds each: it is kept for KEPT_SECONDS, or RARELY times
    as long as it took, so that the pages of a very large site do not take the loop from its messages.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._kept: dict[str, tuple[float, Any]] = {}

    def now(self, *, nodes: bool = False) -> Now:
        """The aggregator as it is now, with every node where pages are about them."""
        view = self._view
        node_counts, unwell = self._seldom("health", lambda: (view.node_counts(), view.unwell_nodes()))
        return Now(
            site=view.site,
            version=view.version,
            revision=view.revision,
            time=view.now,
            started_at=view.started_at,
            ready=view.ready,
            groups={group.name: group for group in view.groups()},
            judgements=view.judgements(),
            alarms=view.alarms(),
            shown=view.shown,
            decisions=view.decisions(),
            history=view.history.frozen(),
            node_counts=node_counts,
            unwell=unwell,
            nodes=self._seldom("nodes", view.nodes) if nodes else None,
            counters=view.counters(),
            durability=view.durability(),
        )

    def _seldom(self, what: str, ask: Callable[[], Answer]) -> Answer:
        until, answer = self._kept.get(what, (-math.inf, None))
        begun = time.monotonic()
        if begun >= until:
            answer = ask()
            ended = time.monotonic()
            self._kept[what] = (ended + max(KEPT_SECONDS, RARELY * (ended - begun)), answer)
        return cast(Answer, answer)
