"""The slow, obvious twins of rollups and join: one component, reading by reading."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

MINUTE = 60


@dataclass(frozen=True, slots=True)
class NaiveReading:
    """Nominal time and time of reading in ms, cumulative fields (None: absent), time of their start."""

    tick: int
    read: int
    values: Mapping[str, int | None]
    started: int = 0


@dataclass(slots=True)
class NaiveMinute:
    """A row of series60 in ms and counts; a field that is not there is unknown."""

    samples: int = 0
    milliseconds: int = 0
    sums: dict[str, int] = field(default_factory=dict)
    fastest: dict[str, float] = field(default_factory=dict)


def naive_rises(before: NaiveReading, after: NaiveReading, longest_ms: int) -> dict[str, int] | None:
    """The increments of the fields that both have, None where nothing is known."""
    if after.tick - before.tick > longest_ms or after.read <= before.read:
        return None
    if before.started and after.started and before.started != after.started:
        return None
    rises = {}
    for name, value in after.values.items():
        earlier = before.values.get(name)
        if value is not None and earlier is not None:
            if value < earlier:
                return None
            rises[name] = value - earlier
    return rises


def naive_minutes(readings: Iterable[NaiveReading], longest_ms: int) -> dict[int, NaiveMinute]:
    """The rows of one component by the start of their minute, in seconds."""
    found: dict[int, NaiveMinute] = {}
    ordered = sorted({reading.tick: reading for reading in readings}.values(), key=lambda each: each.tick)
    for reading in ordered:
        found.setdefault(_minute(reading), NaiveMinute()).samples += 1
    for before, after in pairwise(ordered):
        rises = naive_rises(before, after, longest_ms)
        if rises is None:
            continue
        row, taken = found[_minute(after)], after.read - before.read
        row.milliseconds += taken
        for name, rise in rises.items():
            row.sums[name] = row.sums.get(name, 0) + rise
            row.fastest[name] = max(row.fastest.get(name, 0.0), rise * 1000 / taken)
    return found


def _minute(reading: NaiveReading) -> int:
    return (reading.tick - 1) // (MINUTE * 1000) * MINUTE
