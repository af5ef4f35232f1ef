"""Reads and writes of a job's OSTs or forwarders by the minute, from the archive's rollups.

OSTs as the clients on the job's nodes and forwarders saw them (`lustre_osc`), else as the servers did;
forwarders by their mounts.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.jobs.join.volumes import targets
from laggard_aggregator.jobs.records.hostlist import short_name
from laggard_aggregator.jobs.verdict.evidence.minute_sums import MINUTE, Named, NamedSpan, Rollups

OSTS, FORWARDERS = "OST", "forwarder"
_OST_FIELDS: Final = (
    "read_samples",
    "read_sum",
    "read_bytes_sum",
    "write_samples",
    "write_sum",
    "write_bytes_sum",
)
_FIELDS: Final = {
    "lustre_osc": tuple(name if "bytes" in name else f"ost_{name}" for name in _OST_FIELDS),
    "lustre_ost": _OST_FIELDS,
    "lustre_llite": tuple(name.replace("_samples", "_bytes_samples") for name in _OST_FIELDS),
}
"""Counts, summed times (us) and bytes, of reads and of writes."""
READS, READ_TIME, READ_BYTES, WRITES, WRITE_TIME, WRITTEN_BYTES = range(6)


@dataclass(frozen=True, slots=True)
class ComponentSeries:
    """`sums` (6, C, T) by READS to WRITTEN_BYTES, of C components of `layer` in T minutes; NaN is a gap."""

    layer: str
    names: tuple[str, ...]
    start: float
    sums: FloatArray

    @property
    def rates(self) -> FloatArray:
        """Bytes a second (C, T)."""
        rates: FloatArray = (self.sums[READ_BYTES] + self.sums[WRITTEN_BYTES]) / MINUTE
        return rates

    def latencies(self, count: int) -> FloatArray:
        """Mean times (C, T) in us of the operations of `count`, 0 without any."""
        return _ratio(self.sums[count + 1], self.sums[count])

    def load(self) -> dict[str, FloatArray]:
        """Load as in `GroupWindow`."""
        operations = self.sums[READS] + self.sums[WRITES]
        moved = self.sums[READ_BYTES] + self.sums[WRITTEN_BYTES]
        return {
            "operations": operations,
            "throughput": moved / MINUTE,
            "request_bytes": _ratio(moved, operations),
            "read_share": _ratio(self.sums[READS], operations),
        }


@dataclass(frozen=True, slots=True)
class JobPlaces:
    """Nodes and forwarders of a job, targets that the servers saw it use, and its time in seconds."""

    nodes: Collection[str]
    forwarders: Collection[str]
    osts: Collection[str]
    start: float
    end: float


def component_series(directory: Path, job: JobPlaces) -> list[ComponentSeries]:
    """Series of the job's OSTs and of its forwarders, as far as there are any. Raises ArchiveError."""

    def client(node: str, name: str) -> str | None:
        behind = targets(name)
        return behind.pop() if short_name(node) in clients and len(behind) == 1 else None

    def server(_node: str, name: str) -> str | None:
        return name if name in job.osts else None

    def forwarder(node: str, _name: str) -> str | None:
        return behind.get(short_name(node))

    clients = frozenset(short_name(node) for node in (*job.nodes, *job.forwarders))
    behind = {short_name(node): node for node in job.forwarders}
    wanted: list[tuple[str, str, Named, frozenset[str] | None]] = [(OSTS, "lustre_osc", client, clients)]
    if job.osts:
        wanted.append((OSTS, "lustre_ost", server, None))
    if behind:
        wanted.append((FORWARDERS, "lustre_llite", forwarder, frozenset(behind)))
    series: dict[str, ComponentSeries] = {}
    for layer, source, named, nodes in wanted:
        if layer in series:
            continue
        span = NamedSpan((job.start, job.end), named)
        (sums,) = Rollups(source, _FIELDS[source], nodes).read(directory, [span])
        if sums is not None:
            series[layer] = ComponentSeries(layer, sums.names, sums.start, sums.values)
    return list(series.values())


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """`above / below`, 0 where `below` is 0, NaN in gaps."""
    empty: FloatArray = np.where(np.isnan(below), np.nan, 0.0)
    return np.divide(above, below, out=empty, where=below > 0)
