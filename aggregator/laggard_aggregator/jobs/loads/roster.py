"""The nodes that the archive has data of, with their roles, whoever is up now."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from laggard_aggregator.archive.table import LAST_DAY, Table, day_of, tables_of
from laggard_aggregator.jobs.join.volumes import SOURCES
from laggard_aggregator.settings.aggregator import PeakTable

LUSTRE_CLIENT: Final = "lustre_client"
"""Source of the sum over the mounts of a Lustre client."""


@dataclass(slots=True)
class RosterNode:
    """`roles` in which a node published; `components`: (source, name) of those it published."""

    roles: set[str] = field(default_factory=set)
    components: set[tuple[str, str]] = field(default_factory=set)


def roster(
    directory: Path, sources: Collection[str], start: float, end: float, *, components: bool = False
) -> dict[str, RosterNode]:
    """The nodes with one of `sources` on the days of [start, end], by name; `components` only if asked for.

    Where the archive keeps the readings of none of these days, those of the next day that it has. Raises
    ArchiveError.
    """
    known: dict[str, RosterNode] = {}
    for table in tables_of(directory, "schemas"):
        if table.source not in sources:
            continue
        for node, role, names in _rows(table, day_of(start), day_of(end), components=components):
            of_node = known.setdefault(node, RosterNode())
            of_node.roles.add(role)
            of_node.components.update((table.source, name) for name in names)
    return known


def _rows(
    table: Table, first_day: str, last_day: str, *, components: bool
) -> Iterator[tuple[str, str, list[str]]]:
    columns = ["node", "role", *(["components"] if components else [])]
    days = table.days(first_day, last_day) or table.days(first_day, LAST_DAY)[:1]
    for day in days:
        for rows in table.scan(columns, first_day=day, last_day=day):
            for row in rows.to_pylist():
                yield row["node"], row["role"], [each["name"] for each in row.get("components", ())]


def known_peaks(nodes: Mapping[str, RosterNode], peaks: Iterable[PeakTable]) -> dict[str, float]:
    """Bytes a second at full load by node, by the `[[peak]]` tables of the throughput of its mounts.

    The first table that has a mount counts for it; the peaks of several mounts of a node add up.
    """
    tables = [
        (each.source, re.compile(each.component), each.peak)
        for each in peaks
        if each.metric == "throughput" and each.source in (LUSTRE_CLIENT, *SOURCES)
    ]
    known: dict[str, float] = {}
    for node, seen in nodes.items():
        mounts = {(LUSTRE_CLIENT, LUSTRE_CLIENT), *seen.components}
        of_mounts = (
            next(
                (peak for of, name, peak in tables if of == source and name.fullmatch(f"{node}/{mount}")), 0.0
            )
            for source, mount in mounts
        )
        if total := sum(of_mounts):
            known[node] = total
    return known
