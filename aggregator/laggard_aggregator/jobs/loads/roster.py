"""The nodes with data in the archive and their roles, whether they are up now or not."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Final

from laggard_aggregator.archive.table import LAST_DAY, Table, day_of, tables_of
from laggard_aggregator.jobs.loads.kinds import LoadKind
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
            if names:
                of_node.components.update((table.source, name) for name in names)
    return known


def _rows(
    table: Table, first_day: str, last_day: str, *, components: bool
) -> Iterator[tuple[str, str, list[str]]]:
    columns = ["node", "role", *(["components"] if components else [])]
    days = table.days(first_day, last_day) or table.days(first_day, LAST_DAY)[:1]
    for day in days:
        for rows in table.scan(columns, first_day=day, last_day=day):
            nodes, roles = (rows[name].to_pylist() for name in ("node", "role"))
            named = rows["components"].to_pylist() if components else repeat(())
            for node, role, own in zip(nodes, roles, named, strict=False):
                yield node, role, [component["name"] for component in own]


def known_peaks(
    kind: LoadKind, nodes: Mapping[str, RosterNode], peaks: Iterable[PeakTable]
) -> dict[str, float]:
    """Bytes a second at full load by label of a component, by the `[[peak]]` tables of throughput.

    The first table that has a component counts for it; the peaks of several mounts of a node add up.
    """
    sources = {*kind.sources, *((LUSTRE_CLIENT,) if kind.has_nodes else ())}
    tables = [table for table in peaks if table.metric == "throughput" and table.source in sources]
    known: dict[str, float] = {}
    for node, entry in nodes.items() if tables else ():
        summed = {(LUSTRE_CLIENT, LUSTRE_CLIENT)} if kind.has_nodes else set()
        for source, name in entry.components | summed:
            own = f"{node}/{name}"
            fitting = (t.peak for t in tables if t.source == source and re.fullmatch(t.component, own))
            peak = next(fitting, None)
            if peak is not None:
                label = kind.label(node, name)
                known[label] = (known.get(label, 0.0) if kind.has_nodes else 0.0) + peak
    return known
