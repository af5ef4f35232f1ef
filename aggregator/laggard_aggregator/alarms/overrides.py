"""Operators' overrides: components that are silenced, drained, or to restart.

No clock, no I/O. A silenced component is judged and shown as usual, without notifications. A drained one is
under maintenance: it is neither judged nor a peer until the override ends. An override that changes verdicts
takes effect with the close of a group's next window, which carries it (`log.entries.WindowClose`), so that
journal, archive and replay agree.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from laggard_aggregator.groups.patterns import covering, covers

Kind = Literal["silence", "drain"]

MOST_DECISIONS = 1000
MOST_TARGET_CHARS = 512
MOST_COMMENT_CHARS = 500


@dataclass(frozen=True, slots=True)
class Decision:
    """An override by `by` at `at`, until `until` (inf: until it is ended).

    `target`: a node, a component, or a pattern with `*`, `?` and `[...]`. Times are epoch seconds.
    """

    kind: Kind
    target: str
    by: str
    at: float
    until: float = math.inf
    comment: str = ""

    def covers(self, *names: str) -> bool:
        """Whether it applies to a component with these names: current, permanent, or its node's."""
        return covers(self.target, names)


class Overrides:
    """The overrides in force, and the components to restart with each group's next window."""

    def __init__(self) -> None:
        self.decisions: dict[tuple[str, str], Decision] = {}
        self.restarts: dict[str, set[str]] = {}  # targets by group, until the group's next close

    @property
    def standing(self) -> tuple[Decision, ...]:
        """Overrides in force, and those not yet removed by `expire`, oldest first."""
        return tuple(sorted(self.decisions.values(), key=lambda each: (each.at, each.target)))

    def add(self, decision: Decision) -> None:
        """Adds an override, or replaces the one of its kind and target. Raises ValueError at the limit."""
        key = (decision.kind, decision.target)
        if key not in self.decisions and len(self.decisions) >= MOST_DECISIONS:
            raise ValueError(f"there are {MOST_DECISIONS} decisions already; end some of them")
        self.decisions[key] = decision

    def end(self, kind: str, target: str) -> Decision | None:
        """Removes the override of exactly this target; None without one."""
        return self.decisions.pop((kind, target), None)

    def expire(self, now: float) -> list[Decision]:
        """Removes and returns the expired overrides."""
        over = [key for key, decision in self.decisions.items() if decision.until <= now]
        return [self.decisions.pop(key) for key in over]

    def restart(self, target: str, groups: Iterable[str]) -> None:
        """Restarts the components that `target` names with the next window of each of `groups`."""
        for group in groups:
            self.restarts.setdefault(group, set()).add(target)

    def silenced(self, *names: str) -> Decision | None:
        """The override that silences or drains a component with these names, or None."""
        return next((each for each in self.decisions.values() if each.covers(*names)), None)

    def concern(self, group: str) -> bool:
        """Whether overrides may change a window of `group`."""
        return group in self.restarts or any(each.kind == "drain" for each in self.decisions.values())

    def at_close(
        self, group: str, components: Sequence[str], shown: Mapping[str, str]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The drained components of a group, and those to restart with this close."""
        drains = [each.target for each in self.decisions.values() if each.kind == "drain"]
        restart = self.restarts.pop(group, ())
        return _named(drains, components, shown), _named(restart, components, shown)

    def state(self) -> dict[str, Any]:
        """State as plain data for JSON."""
        return {
            "decisions": [
                {**asdict(each), "until": each.until if math.isfinite(each.until) else None}
                for each in self.standing
            ],
            "afresh": {group: sorted(targets) for group, targets in self.restarts.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores `state()`. Raises ValueError when it is malformed."""
        try:
            for kept in state["decisions"]:
                self.add(_decision(kept))
            for group, targets in state["afresh"].items():
                self.restarts[str(group)] = {checked_target(target) for target in targets}
        except (LookupError, TypeError, AttributeError, OverflowError) as exc:
            raise ValueError(f"{type(exc).__name__}: {exc}") from exc


def checked_target(target: Any) -> str:
    """`target` if it is valid. Raises ValueError."""
    if not isinstance(target, str) or not 0 < len(target) <= MOST_TARGET_CHARS or not target.isprintable():
        raise ValueError(f"expected a node, a component or a pattern of them, got {str(target)[:80]!r}")
    return target


def _decision(kept: Mapping[str, Any]) -> Decision:
    until = math.inf if kept["until"] is None else float(kept["until"])
    kind = kept["kind"]
    if kind not in ("silence", "drain"):
        raise ValueError(f"a decision of kind {str(kind)[:40]!r}")
    return Decision(
        kind,
        checked_target(kept["target"]),
        str(kept["by"])[:MOST_TARGET_CHARS],
        float(kept["at"]),
        until,
        str(kept["comment"])[:MOST_COMMENT_CHARS],
    )


def _named(targets: Iterable[str], components: Sequence[str], shown: Mapping[str, str]) -> tuple[str, ...]:
    chosen = tuple(targets)
    if not chosen:
        return ()
    covered = covering(chosen)
    return tuple(key for key in components if covered((key, shown.get(key, key))))
