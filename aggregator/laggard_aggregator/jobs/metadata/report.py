"""Counts of an import: records read, rows left out and why, so that nothing is lost in silence."""

from collections import Counter
from dataclasses import dataclass, field

MAX_NAMED = 20
"""Rows left out that are named one by one."""
_SHOWN_CHARS = 100


@dataclass(slots=True)
class ReadReport:
    """Counts of one input. `named`: the first broken rows, each `line N: reason: text`."""

    records: int = 0
    steps: int = 0
    """Rows of job steps, which are left out."""
    broken: Counter[str] = field(default_factory=Counter)
    """Rows left out, by reason."""
    bad_node_lists: int = 0
    """Records kept without their nodes, whose list cannot be used."""
    ambiguous: int = 0
    """Records with a local time that occurs twice, at the end of summer time."""
    named: list[str] = field(default_factory=list)

    def leave_out(self, line: int, reason: str, text: str) -> None:
        """Counts a broken row, and names it while there are few."""
        self.broken[reason] += 1
        self.name(line, reason, text)

    def name(self, line: int, reason: str, text: str) -> None:
        """Names a row while there are few."""
        if len(self.named) < MAX_NAMED:
            shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
            self.named.append(f"line {line}: {reason}: {shown}")
