"""Maintenance that rotates: members that are slow one after the other, as in a scrub or a patrol read.

The episodes of a group's members and one metric are kept. Where they follow each other over many members,
and are alike in length and factor, the group's page says so; with `rotating = true` in its `[[group]]` an
episode like these raises no alarm, unless it does not move on.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

MAX_KEPT = 64
KEPT_SECONDS = 7 * 86400.0
MIN_EPISODES = 3
"""Finished episodes from which their usual length and slowness are known."""
FIRST_SECONDS = 4 * 3600.0
"""Longest episode without an alarm until then."""
MIN_SECONDS = 3600.0
"""The same once they are known, however short the others were."""
OVERDUE_RATIO, WORSE_RATIO = 2.0, 2.0
"""Multiples of the typical length and factor from which an episode is not like the others."""
MIN_MEMBERS, MIN_MEMBERS_SHARE = 4, 1 / 3
"""Members, and share of them, with an episode that make a pattern."""
MIN_ALIKE_SHARE, MAX_OVERLAP_SHARE = 0.75, 0.5
"""Share of episodes that are alike and follow each other; overlap of two in shares of the typical length."""


class SlowTurn(NamedTuple):
    """One member's slowness: `begin`, and `end` of its last window, epoch seconds; its largest `severity`."""

    component: str
    begin: float
    end: float
    severity: float


class Rotation:
    """The episodes of one group and metric. `finished`: in order of their ends; `open`: by component."""

    def __init__(self) -> None:
        self.finished: list[SlowTurn] = []
        self.open: dict[str, SlowTurn] = {}

    def update(self, present: Sequence[str], slow: Mapping[str, SlowTurn], end: float) -> None:
        """Adds a window that ended at `end`: of the members `present`, the `slow` ones."""
        for component in [name for name in present if name in self.open and name not in slow]:
            self.finished.append(self.open.pop(component))
        for component, now in slow.items():
            before = self.open.get(component)
            worst = now.severity if before is None else np.fmax(before.severity, now.severity)
            self.open[component] = now._replace(severity=float(worst))
        if self.finished:
            kept = [episode for episode in self.finished if end - episode.end <= KEPT_SECONDS]
            self.finished = kept[-MAX_KEPT:]

    def moves_on(self, component: str) -> bool:
        """Whether the open episode of `component` is no longer, and no worse, than those that moved on."""
        now, limit = self.open[component], FIRST_SECONDS
        if len(self.finished) >= MIN_EPISODES:
            limit = max(OVERDUE_RATIO * self._length(), MIN_SECONDS)
            severity = float(np.nanmedian([1.0, *(episode.severity for episode in self.finished)]))
            if now.severity > WORSE_RATIO * severity:
                return False
        return now.end - now.begin <= limit

    def text(self, members: int) -> str:
        """A sentence on the pattern; empty where members are not slow one after the other."""
        episodes = sorted(self.finished, key=lambda episode: episode.begin)
        turns = {episode.component for episode in episodes}
        if len(turns) < max(MIN_MEMBERS, MIN_MEMBERS_SHARE * members):
            return ""
        length, severity = self._length(), float(np.nanmedian([episode.severity for episode in episodes]))
        alike = [
            1 / OVERDUE_RATIO <= (episode.end - episode.begin) / length <= OVERDUE_RATIO
            and not episode.severity > WORSE_RATIO * severity
            for episode in episodes
        ]
        in_turn = [
            after.begin >= before.end - MAX_OVERLAP_SHARE * length and after.component != before.component
            for before, after in pairwise(episodes)
        ]
        if np.mean(alike) < MIN_ALIKE_SHARE or np.mean(in_turn) < MIN_ALIKE_SHARE:
            return ""
        return (
            f"{len(turns)} of {members} members were slow one after the other, each for about "
            f"{length / 3600.0:.1f} hours: maintenance that rotates, such as a scrub"
        )

    def forget(self, components: Sequence[str] | set[str]) -> None:
        """Drops the episodes of `components`."""
        gone = set(components)
        self.finished = [episode for episode in self.finished if episode.component not in gone]
        self.open = {name: episode for name, episode in self.open.items() if name not in gone}

    def _length(self) -> float:
        return float(np.median([episode.end - episode.begin for episode in self.finished]))

    def state(self) -> dict[str, Any]:
        """The state as plain data, empty without episodes."""
        if not (self.finished or self.open):
            return {}
        return {"finished": [list(e) for e in self.finished], "open": [list(e) for e in self.open.values()]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores `state()`. Raises ValueError or TypeError when it is malformed."""
        finished, opened = (
            [
                SlowTurn(str(component), float(begin), float(end), float(severity))
                for component, begin, end, severity in state[name]
            ]
            for name in ("finished", "open")
        )
        self.finished, self.open = finished, {episode.component: episode for episode in opened}
