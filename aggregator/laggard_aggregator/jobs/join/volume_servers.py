"""GlusterFS volumes by the archive's schemas: the nodes that mount each, and the bricks of each.

A brick counts for all clients of its volume together. Its bytes are a job's while every occupied node that
mounts the volume is the job's, as those of a forwarder are.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from laggard_aggregator.archive.table import Table, day_of
from laggard_aggregator.jobs.join.membership import Occupation
from laggard_aggregator.jobs.records.hostlist import short_name

MOUNTS: Final = "gluster_client"
BRICKS: Final = "gluster_brick"
_LABEL: Final = "volume"
_DAY_NS: Final = 86_400 * 10**9


class VolumeServers:
    """Mounts and bricks of the volumes of a site in [start, end). Raises ArchiveError."""

    def __init__(self, directory: Path, site: str, start_ns: int, end_ns: int) -> None:
        days = [day_of(at / 1e9) for at in range(start_ns, end_ns + _DAY_NS, _DAY_NS)]
        self._mounted: dict[str, set[str]] = {}
        for node, volume, _ in _components(directory, MOUNTS, site, days):
            self._mounted.setdefault(short_name(node), set()).add(volume)
        self._volume_of = {
            (node, brick): labels.get(_LABEL, "")
            for node, brick, labels in _components(directory, BRICKS, site, days)
        }

    def behind(self, occupations: Iterable[Occupation]) -> list[Occupation]:
        """The jobs on volumes, from those on the nodes that mount them: one job alone, or shared."""
        return [
            Occupation(occupation.job, _place(volume), occupation.start_ns, occupation.end_ns)
            for occupation in occupations
            for volume in sorted(self._mounted.get(short_name(occupation.node), ()))
        ]

    def place_of(self, node: str, brick: str) -> str:
        """The name by which `behind` knows a brick's volume."""
        return _place(self._volume_of.get((node, brick), ""))


def _place(volume: str) -> str:
    """No name of a node, which has no slash."""
    return f"/{volume}"


def _components(
    directory: Path, source: str, site: str, days: Iterable[str]
) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yields node, id and labels of the components in the schemas of some days."""
    schemas = Table(directory, "schemas", source, site)
    for day in days:
        for table in schemas.scan(["node", "components"], first_day=day, last_day=day):
            for row in table.to_pylist():
                for component in row["components"]:
                    yield row["node"], component["id"], dict(component["labels"])
