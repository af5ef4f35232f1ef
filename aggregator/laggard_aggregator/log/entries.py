"""What a journal has to keep so that its replay goes through the same states: every input that counted.

Duplicates, malformed messages and those that still wait for their schema change nothing that lasts, and are
not among them.
"""

from dataclasses import dataclass

from laggard_aggregator.ingest.batches import WindowClose


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """A message that was taken under `ordinal`, as it came."""

    ordinal: int
    received_ns: int
    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class SchemaEntry:
    """A schema that was accepted after the batch or close `ordinal`, as it came."""

    ordinal: int
    received_ns: int
    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class CloseEntry:
    """A window that was closed."""

    close: WindowClose

    @property
    def ordinal(self) -> int:
        """The close's own."""
        return self.close.ordinal


@dataclass(frozen=True, slots=True)
class ReturnEntry:
    """A batch that was taken under `ordinal` and given back: its sender keeps it, and sends it again."""

    ordinal: int


@dataclass(frozen=True, slots=True)
class SweepEntry:
    """Old gaps were declared as of `now_ns`, and what was silent for too long forgotten if `forget`."""

    ordinal: int
    now_ns: int
    forget: bool


@dataclass(frozen=True, slots=True)
class ForgetEntry:
    """What `target` names and was silent since `before_ns` was forgotten: an operator asked for it."""

    ordinal: int
    now_ns: int
    before_ns: int
    target: str


Entry = BatchEntry | SchemaEntry | CloseEntry | ReturnEntry | SweepEntry | ForgetEntry
