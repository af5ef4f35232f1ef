"""Fills the table `paths` of the archive, a file a day: which way the I/O of nodes went.

An edge is a node and a target that a client of it was connected to (Lustre's OSCs and MDCs, by the rollups),
or a compute node and its forwarder, by the file of forwarders. A node behind a forwarder reaches what its
forwarder reaches.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.archive.table import Among, Table, day_of, rows_table
from laggard_aggregator.jobs.join.volumes import FORWARDER, METADATA, SERVER, is_ost
from laggard_aggregator.jobs.rollups.series60 import KIND
from laggard_aggregator.jobs.tables import PATHS
from laggard_common.errors import InputError

SETTLED_NS: Final = 2 * 3600 * 10**9
"""A day is written this long after its end; later records are not in it."""
CONFIGURED, OBSERVED = "forwarders", "osc"
SOURCES: Final = ("lustre_osc", "lustre_mdc")
_CLIENT: Final = re.compile(r"(.+-(OST|MDT)[0-9a-fA-F]{4})-(?:osc|mdc)(?:-[0-9a-f]+)?")


@dataclass(frozen=True, slots=True)
class PathEdge:
    """A row of `paths`: `target` is an OST, an MDT or, in the layer `forwarder`, the forwarder itself."""

    node: str
    forwarder: str | None
    target: str
    layer: str
    source: str
    start: float
    end: float


class PathPass:
    """Writes the days that are over. `served_by`: the forwarder of each node that has one."""

    def __init__(self, directory: Path, site: str, served_by: Mapping[str, str]) -> None:
        self._directory, self._site, self._served_by = directory, site, served_by

    def run(self, now_ns: int) -> int:
        """Writes the missing days; returns their number. Raises ArchiveError."""
        last = day_of((now_ns - SETTLED_NS) / 1e9 - 86_400.0)
        days = {day for source in SOURCES for day in self._rollups(source).days(last_day=last)}
        if self._served_by:
            days.add(last)
        paths = Table(self._directory, "paths", site=self._site)
        missing = sorted(days - {part.day for part in paths.files()})
        for day in missing:
            start = datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
            table = rows_table(PATHS, [asdict(edge) for edge in self.edges(day)])
            paths.append(day, [table], round(start * 1e9), PATHS)
        return len(missing)

    def _rollups(self, source: str) -> Table:
        return Table(self._directory, KIND, source, self._site)

    def edges(self, day: str) -> Iterator[PathEdge]:
        """Yields the edges of a day, sorted by node and target. Raises ArchiveError."""
        start = datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
        edges = [
            PathEdge(node, forwarder, forwarder, FORWARDER, CONFIGURED, start, start + 86_400.0)
            for node, forwarder in self._served_by.items()
        ]
        spans: dict[tuple[str, str], tuple[float, float]] = {}
        for source in SOURCES:
            for table in self._rollups(source).scan(["node", "name", "minute"], first_day=day, last_day=day):
                for node, name, first, last in _clients(table):
                    match = _CLIENT.fullmatch(name)
                    if match is not None:
                        known = spans.get((node, match[1]), (first, last))
                        spans[node, match[1]] = min(known[0], first), max(known[1], last)
        for (node, target), (first, last) in spans.items():
            layer = SERVER if is_ost(target) else METADATA
            edges.append(PathEdge(node, self._served_by.get(node), target, layer, OBSERVED, first, last))
        yield from sorted(edges, key=lambda edge: (edge.node, edge.target))


def client_node(component: str) -> str | None:
    """The node of a Lustre client's view of a target, such as `fwd-1/fs-OST0000-osc`; None for others."""
    node, slash, name = component.partition("/")
    return node if slash and _CLIENT.fullmatch(name) else None


def _clients(table: pa.Table) -> Iterator[tuple[str, str, float, float]]:
    """Yields node, name of a client, begin of its first and end of its last minute in some rows."""
    plain = [table["node"].cast(pa.string()), table["name"].cast(pa.string())]
    minute = pc.divide(table["minute"].cast(pa.int64()), 10**9)
    spans = pa.table([*plain, minute], names=["node", "name", "minute"]).group_by(
        ["node", "name"], use_threads=False
    )
    for row in spans.aggregate([("minute", "min"), ("minute", "max")]).to_pylist():
        yield row["node"], row["name"], float(row["minute_min"]), row["minute_max"] + 60.0


MAX_BYTES = 64 * 1024**2


def read_forwarders(path: Path) -> Mapping[str, str]:
    """The forwarder of each node. Raises InputError for a file that cannot be used."""
    with InputError.from_os_errors(path), path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise InputError(str(path), f"has more than {MAX_BYTES} bytes")
    forwarders: dict[str, str] = {}
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        node, comma, forwarder = (part.strip() for part in text.partition(","))
        if not node or not comma or not forwarder:
            raise InputError(str(path), f"line {number}: expected node,forwarder, got {text[:100]!r}")
        if forwarders.setdefault(node, forwarder) != forwarder:
            raise InputError(str(path), f"line {number}: {node} has two forwarders")
    return forwarders


def archived_forwarders(directory: Path) -> Mapping[str, str]:
    """The forwarder of each node on the last day of `paths`, none without them. Raises ArchiveError."""
    paths = Table(directory, "paths")
    last = max(paths.days(), default="")
    tables = paths.scan(["node", "forwarder"], Among("source", [CONFIGURED]), first_day=last, last_day=last)
    return {row["node"]: row["forwarder"] for table in tables for row in table.to_pylist()}
