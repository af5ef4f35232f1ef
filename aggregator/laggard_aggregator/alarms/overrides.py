"""Operators' overrides: components that are silenced, drained, commented, or to restart.

No clock, no I/O. A silenced component is judged and shown as usual, without notifications. A drained one is
under maintenance: it is neither judged nor a peer until the override ends. A comment changes nothing. An
override that changes verdicts takes effect with the close of a group's next window, which carries it
(`log.entries.WindowClose`), so that journal, archive and replay agree.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast, get_args

from laggard_aggregator.groups.patterns import covering, covers

Kind = Literal["silence", "drain", "comment"]
KINDS: tuple[Kind, ...] = get_args(Kind)

MOST_DECISIONS = 1000
MOST_COMMENTS = 20
"""Limit of comments of one target; a further one takes the place of the oldest."""
MOST_TARGET_CHARS = 512
MOST_COMMENT_CHARS = 500
MOST_TICKET_CHARS = 500
_TICKET = re.compile(
    r"https?://[A-Za-z0-9.\-]+(?::[0-9]{1,5})?(?:[/?#][A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]*)?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Decision:
    """An override by `by` at `at`, until `until` (inf: until it is ended).

    `target`: a node, a component, or a pattern with `*`, `?` and `[...]`. Times are epoch seconds. `ticket`:
    a link, or empty.
    """

    kind: Kind
    target: str
    by: str
    at: float
    until: float = math.inf
    comment: str = ""
    ticket: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """Its identity: a target has one override of a kind, and any comments."""
        time = (repr(self.at),) if self.kind == "comment" else ()
        return (self.kind, self.target, *time)

    def plain(self) -> dict[str, Any]:
        """As plain data for JSON; `until` is None without an end."""
        return asdict(self) | {"until": self.until if math.isfinite(self.until) else None}

    def covers(self, *names: str) -> bool:
        """Whether it applies to a component with these names: current, permanent, or its node's."""
        return covers(self.target, names)


class Overrides:
    """The overrides in force, and the components to restart with each group's next window."""

    def __init__(self) -> None:
        self.decisions: dict[tuple[str, ...], Decision] = {}
        self.restarts: dict[str, set[str]] = {}  # targets by group, until the group's next close

    @property
    def standing(self) -> tuple[Decision, ...]:
        """Overrides in force, and those not yet removed by `expire`, oldest first."""
        return tuple(sorted(self.decisions.values(), key=lambda decision: (decision.at, decision.target)))

    def add(self, decision: Decision) -> None:
        """Adds an override, or replaces the one of its kind and target. Raises ValueError at the limit."""
        same = self._of(decision.kind, decision.target)
        replaced = decision.key in self.decisions or len(same) >= MOST_COMMENTS
        if not replaced and len(self.decisions) >= MOST_DECISIONS:
            raise ValueError(f"there are {MOST_DECISIONS} decisions already; end some of them")
        if len(same) >= MOST_COMMENTS:
            del self.decisions[min(same, key=lambda decision: decision.at).key]
        self.decisions[decision.key] = decision

    def end(self, kind: str, target: str) -> Decision | None:
        """Removes the override, or all comments, of exactly this target; the latest, None without any."""
        removed = [self.decisions.pop(decision.key) for decision in self._of(kind, target)]
        return removed[-1] if removed else None

    def _of(self, kind: str, target: str) -> list[Decision]:
        return [own for own in self.decisions.values() if (own.kind, own.target) == (kind, target)]

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
        return next(silencing(self.decisions.values(), *names), None)

    def concern(self, group: str) -> bool:
        """Whether overrides may change a window of `group`."""
        return group in self.restarts or any(decision.kind == "drain" for decision in self.decisions.values())

    def at_close(
        self, group: str, components: Sequence[str], shown: Mapping[str, str]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The drained components of a group, and those to restart with this close."""
        drains = [decision.target for decision in self.decisions.values() if decision.kind == "drain"]
        restart = self.restarts.pop(group, ())
        return _named(drains, components, shown), _named(restart, components, shown)

    def state(self) -> dict[str, Any]:
        """State as plain data for JSON."""
        return {
            "decisions": [decision.plain() for decision in self.standing],
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


def silencing(decisions: Iterable[Decision], *names: str) -> Iterator[Decision]:
    """Those of `decisions` that silence or drain a component with these names."""
    return (decision for decision in decisions if decision.kind != "comment" and decision.covers(*names))


def commenting(decisions: Sequence[Decision], *names: str) -> Iterator[Decision]:
    """Those of `decisions` with a comment or a ticket about a component with these names, last first."""
    return (own for own in decisions[::-1] if (own.comment or own.ticket) and own.covers(*names))


def checked_ticket(ticket: Any) -> str:
    """`ticket` if it is empty or an address of http or https. Raises ValueError."""
    if not isinstance(ticket, str) or len(ticket) > MOST_TICKET_CHARS:
        raise ValueError(f"ticket: expected a link of at most {MOST_TICKET_CHARS} characters")
    if ticket and not _TICKET.fullmatch(ticket):
        raise ValueError(f"ticket: expected http://... or https://..., got {ticket[:80]!r}")
    return ticket


def checked_target(target: Any) -> str:
    """`target` if it is valid. Raises ValueError."""
    if not isinstance(target, str) or not 0 < len(target) <= MOST_TARGET_CHARS or not target.isprintable():
        raise ValueError(f"expected a node, a component or a pattern of them, got {str(target)[:80]!r}")
    return target


def _decision(kept: Mapping[str, Any]) -> Decision:
    until = math.inf if kept["until"] is None else float(kept["until"])
    kind = kept["kind"]
    if kind not in KINDS:
        raise ValueError(f"a decision of kind {str(kind)[:40]!r}")
    return Decision(
        cast(Kind, kind),
        checked_target(kept["target"]),
        str(kept["by"])[:MOST_TARGET_CHARS],
        float(kept["at"]),
        until,
        str(kept["comment"])[:MOST_COMMENT_CHARS],
        checked_ticket(kept.get("ticket", "")),  # absent from files of earlier versions
    )


def _named(targets: Iterable[str], components: Sequence[str], shown: Mapping[str, str]) -> tuple[str, ...]:
    chosen = tuple(targets)
    if not chosen:
        return ()
    covered = covering(chosen)
    return tuple(key for key in components if covered((key, shown.get(key, key))))
