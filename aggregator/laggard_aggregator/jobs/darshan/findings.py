"""Findings about a job's I/O, and rules that could not be judged."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MIB: Final = float(1 << 20)
MIN_SHARE: Final = 0.1
"""Share of the critical time from which a cause is named."""


@dataclass(frozen=True, slots=True)
class IoFinding:
    """A cause of slow I/O. `share`: of the critical time. `factor`: times slower, or the factor's value."""

    job: int
    direction: str
    kind: str
    component: str | None
    factor: float
    share: float
    text: str
    advice: str


@dataclass(frozen=True, slots=True)
class NotJudged:
    """A rule or module without a verdict, and why."""

    job: int
    rule: str
    reason: str


def ranked(findings: Sequence[IoFinding]) -> list[IoFinding]:
    """By the critical time that each explains, largest first; of equal shares stragglers before patterns."""
    return sorted(
        findings, key=lambda own: (-round(own.share, 2), _ORDER.get(own.kind, len(_ORDER)), own.text)
    )


_ORDER: Final = {
    "ost": 0,
    "node": 1,
    "rank": 2,
    "imbalance": 3,
    "nonconsecutive": 4,
    "small": 5,
    "striping": 6,
    "single file": 7,
    "serial files": 8,
}


def rate(mib_per_second: float) -> str:
    """A rate in MiB/s, to three figures."""
    return f"{mib_per_second:,.0f}" if mib_per_second >= 1000 else f"{mib_per_second:.3g}"


def done(direction: str) -> str:
    """The past tense of a direction."""
    return "wrote" if direction == "write" else "read"


def seconds(micros: float) -> str:
    """A duration in seconds, to three figures or whole seconds."""
    value = micros / 1e6
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
