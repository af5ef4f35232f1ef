"""Components that stay anomalous, by the hour: persistence ordering (Intrepid, section 4.3, Fig. 5)."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from laggard_aggregator.archive.table import Table, day_of

MOST_A_HOUR: Final = 5
"""Components of an hour, as many as the paper shows at most."""
_DAY: Final = 86_400.0
_HOUR: Final = 3600.0
_COLUMNS: Final = ("component", "group", "metric", "end", "anomalous", "persistence")


@dataclass(frozen=True, slots=True)
class PersistentComponent:
    """`persistence`: anomalous windows less the others, never below 0, at the end of an hour."""

    component: str
    group: str
    persistence: int


@dataclass(frozen=True, slots=True)
class PersistentHour:
    """The most persistent components of the hour that begins at `start`, epoch seconds."""

    start: float
    components: tuple[PersistentComponent, ...]


@dataclass(frozen=True, slots=True)
class PersistenceOrder:
    """`hours` with persistent components, in order of time.

    `ranked`: each component once, with the largest persistence that it had at the end of an hour; `courses`:
    persistence at those ends by component and hour. `anomalous_hours`: hours with an anomalous window.
    """

    hours: tuple[PersistentHour, ...]
    ranked: tuple[PersistentComponent, ...]
    courses: Mapping[str, Mapping[float, int]]
    anomalous_hours: Mapping[str, int]


def persistence(directory: Path, start: float, end: float) -> PersistenceOrder:
    """The order of the windows that ended in [start, end), by the archive's verdicts. Raises ArchiveError.

    A component that several metrics judge has the persistence of the one that has most.
    """
    last: dict[tuple[float, str, str, str], tuple[float, int]] = {}
    anomalous: dict[str, set[float]] = defaultdict(set)
    days = {"first_day": day_of(start), "last_day": day_of(end + _DAY)}  # files are by the day of receipt
    for table in Table(directory, "verdicts").scan(_COLUMNS, **days):
        for row in table.to_pylist():
            if not start <= row["end"] < end:
                continue
            hour = row["end"] // _HOUR * _HOUR
            key = hour, row["component"], row["group"], row["metric"]
            last[key] = max(last.get(key, (0.0, 0)), (row["end"], row["persistence"]))
            if row["anomalous"]:
                anomalous[row["component"]].add(hour)
    by_hour: dict[float, dict[str, PersistentComponent]] = defaultdict(dict)
    for (hour, component, group, _), (_, count) in last.items():
        known = by_hour[hour].get(component)
        if count > 0 and (known is None or (-known.persistence, known.group) > (-count, group)):
            by_hour[hour][component] = PersistentComponent(component, group, count)
    hours = [
        PersistentHour(hour, tuple(sorted(components.values(), key=_order)[:MOST_A_HOUR]))
        for hour, components in sorted(by_hour.items())
        if components
    ]
    ranked: dict[str, PersistentComponent] = {}
    for persistent in sorted((own for hour in by_hour.values() for own in hour.values()), key=_order):
        ranked.setdefault(persistent.component, persistent)
    courses: dict[str, dict[float, int]] = defaultdict(dict)
    for hour, components in by_hour.items():
        for component, persistent in components.items():
            courses[component][hour] = persistent.persistence
    counts = {component: len(hours) for component, hours in anomalous.items()}
    return PersistenceOrder(tuple(hours), tuple(ranked.values()), courses, counts)


def _order(persistent: PersistentComponent) -> tuple[int, str, str]:
    return -persistent.persistence, persistent.component, persistent.group
