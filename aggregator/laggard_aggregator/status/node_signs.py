"""Evidence beside the alarms of a node, in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from laggard_aggregator.engine.node_evidence import NodeSign
from laggard_aggregator.status.formatting import counted, minute, plain

MOST_TOLD = 5


@dataclass(frozen=True, slots=True)
class BesideAlarm:
    """Evidence beside an alarm: clauses that `happened` to `subject`, and `advice`.

    `subject`: empty for the alarm's component itself. `since`: of its first event,
    epoch seconds; NaN where it is a state alone.
    """

    subject: str
    happened: str
    since: float
    advice: str

    @property
    def text(self) -> str:
        """One line: `sdc: 12 failed commands, 3 timeouts since 2026-01-31 10:02 UTC: replace it`."""
        when = f" since {minute(self.since)}" if math.isfinite(self.since) else ""
        return f"{self.subject and self.subject + ': '}{self.happened}{when}: {self.advice}"


def beside(signs: Sequence[NodeSign], name: str) -> tuple[BesideAlarm, ...]:
    """The evidence of a node beside an alarm of its component called `name`, the component's own first."""
    device = name.partition("/")[2]
    ordered = sorted(signs, key=lambda sign: sign.component != device)
    return tuple(_told(sign, sign.component == device) for sign in ordered[:MOST_TOLD])


def _told(sign: NodeSign, is_own: bool) -> BesideAlarm:
    parts = (
        *(state.says for state in sign.states),
        *(counted(event.count, event.of.one, event.of.many) for event in sign.events),
    )
    advice = (*(state.advice for state in sign.states), *(event.of.advice for event in sign.events))
    return BesideAlarm(
        "" if is_own else plain(sign.component),
        ", ".join(parts),
        sign.since,
        "; ".join(dict.fromkeys(advice)),
    )
