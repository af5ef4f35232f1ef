"""Which components are silenced or drained, and which of them shall be judged afresh. No clock, no I/O.

A silenced component is judged and shown as ever, but nobody is told of it. A drained one is being worked on:
it is neither judged nor anybody's peer, until that is ended. Whatever changes verdicts takes effect with the
close of a group's next window, which carries it (`ingest.taken.WindowClose`), so that journal and archive
have it and a replay sees the same.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase, translate
from typing import Any, Literal

Kind = Literal["silence", "drain"]

MOST_DECISIONS = 1000
MOST_TARGET_CHARS = 512
MOST_COMMENT_CHARS = 500


@dataclass(frozen=True, slots=True)
class Decision:
    """What `by` decided at `at` about all that `target` names, until `until` (inf: until it is ended).

    `target`: a node, a component or a pattern with `*`, `?` and `[...]` for them. Times are epoch seconds.
    """

    kind: Kind
    target: str
    by: str
    at: float
    until: float = math.inf
    comment: str = ""

    def covers(self, *names: str) -> bool:
        """Whether it is about a component of these names: of the day, lasting, or its node's."""
        return covers(self.target, names)


def covers(target: str, names: Iterable[str]) -> bool:
    """Whether `target` names one of `names`, or the node that one of them begins with."""
    pattern = _is_pattern(target)
    return any(name == target or (pattern and fnmatchcase(name, target)) for name in _with_nodes(names))


def covering(targets: Iterable[str]) -> Callable[[Iterable[str]], bool]:
    """As `covers` of any of `targets`, to be asked of many components: names cost the same however many."""
    exact = frozenset(targets)
    patterns = [re.compile(translate(target)).match for target in exact if _is_pattern(target)]

    def covered(names: Iterable[str]) -> bool:
        return any(name in exact or any(match(name) for match in patterns) for name in _with_nodes(names))

    return covered


class Overrides:
    """The decisions that stand, and who is to be judged afresh with each group's next window."""

    def __init__(self) -> None:
        self._standing: dict[tuple[str, str], Decision] = {}
        self._afresh: dict[str, set[str]] = {}  # targets by group, until the group's next close

    @property
    def standing(self) -> tuple[Decision, ...]:
        """All that stand or have lapsed since `lapse` was last asked, oldest first."""
        return tuple(sorted(self._standing.values(), key=lambda each: (each.at, each.target)))

    def decide(self, decision: Decision) -> None:
        """Takes it in, in place of one of its kind and target. Raises ValueError when there are too many."""
        key = (decision.kind, decision.target)
        if key not in self._standing and len(self._standing) >= MOST_DECISIONS:
            raise ValueError(f"there are {MOST_DECISIONS} decisions already; end some of them")
        self._standing[key] = decision

    def end(self, kind: str, target: str) -> Decision | None:
        """Ends a decision, which was about exactly this target; None when there was none."""
        return self._standing.pop((kind, target), None)

    def lapse(self, now: float) -> list[Decision]:
        """Drops the decisions whose time is over."""
        over = [key for key, decision in self._standing.items() if decision.until <= now]
        return [self._standing.pop(key) for key in over]

    def afresh(self, target: str, groups: Iterable[str]) -> None:
        """Lets what `target` names start over with the next window of each of `groups`."""
        for group in groups:
            self._afresh.setdefault(group, set()).add(target)

    def silenced(self, *names: str) -> Decision | None:
        """The decision by which nobody is told of a component of these names; a drained one counts too."""
        return next((each for each in self._standing.values() if each.covers(*names)), None)

    def concern(self, group: str) -> bool:
        """Whether a window of `group` may have to be closed otherwise than usual."""
        return group in self._afresh or any(each.kind == "drain" for each in self._standing.values())

    def at_close(
        self, group: str, components: Sequence[str], shown: Mapping[str, str]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Of a group's components the drained ones, and those to be judged afresh from this close on."""
        drains = [each.target for each in self._standing.values() if each.kind == "drain"]
        afresh = self._afresh.pop(group, ())
        return _named(drains, components, shown), _named(afresh, components, shown)

    def state(self) -> dict[str, Any]:
        """What lasts, as plain data for JSON."""
        return {
            "decisions": [
                {**asdict(each), "until": each.until if math.isfinite(each.until) else None}
                for each in self.standing
            ],
            "afresh": {group: sorted(targets) for group, targets in self._afresh.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state()`. Raises ValueError on what is none."""
        try:
            for kept in state["decisions"]:
                self.decide(_decision(kept))
            for group, targets in state["afresh"].items():
                self._afresh[str(group)] = {checked_target(target) for target in targets}
        except (LookupError, TypeError, AttributeError, OverflowError) as exc:
            raise ValueError(f"{type(exc).__name__}: {exc}") from exc


def checked_target(target: Any) -> str:
    """`target` if it can be one. Raises ValueError."""
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


def _is_pattern(target: str) -> bool:
    return any(sign in target for sign in "*?[")


def _with_nodes(names: Iterable[str]) -> Iterable[str]:
    for name in names:
        yield name
        yield name.partition("/")[0]
