"""Job records that a reader leaves out or doubts, counted and named."""

from collections import Counter
from dataclasses import dataclass, field

from laggard_common.errors import LaggardError

MAX_TEXT = 1024
"""Characters of a name that are kept; longer ones are cut."""


class JobDataError(LaggardError):
    """Job metadata that cannot be used; the message names the record and the reason."""


NO_LINE_FEED = "the last line has no line feed, so it may be cut short"
MAX_NAMED = 20
"""Rows left out that are named one by one."""
_SHOWN_CHARS = 100


@dataclass(slots=True)
class ReadReport:
    """Counts of one input. `named`: the first broken rows, each `PLACE: reason: text`."""

    records: int = 0
    steps: int = 0
    """Rows of job steps, which are left out."""
    broken: Counter[str] = field(default_factory=Counter)
    """Rows left out, by reason."""
    bad_node_lists: int = 0
    """Records kept without their nodes, whose list cannot be used."""
    ambiguous: int = 0
    """Records with a local time that occurs twice, at the end of summer time."""
    doubts: Counter[str] = field(default_factory=Counter)
    """Records kept without one of their values, and failures that the source reports, by reason."""
    named: list[str] = field(default_factory=list)

    def leave_out(self, place: str, reason: str, text: str) -> None:
        """Counts a broken row, and names it while there are few. `place`: such as `line 3`."""
        self.broken[reason] += 1
        self.name(place, reason, text)

    def doubt(self, reason: str) -> None:
        """Counts something of the input that is not as it should be."""
        self.doubts[reason] += 1

    def name(self, place: str, reason: str, text: str) -> None:
        """Names a row while there are few."""
        if len(self.named) < MAX_NAMED:
            shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
            self.named.append(f"{place}: {reason}: {shown}")
