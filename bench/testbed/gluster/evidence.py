"""What the counters say of a phase of a run, taken from the archive without any detector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.testbed.gluster.cluster import Cluster
from bench.testbed.gluster.experiments import Target
from laggard_aggregator.archive.reader import ArchiveReader


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a source: the rise of the counters `above` by that of `below`, times `scale`."""

    source: str
    unit: str
    above: tuple[str, ...]
    below: tuple[str, ...]
    scale: float


FIGURES: Mapping[str, Figure] = {
    "read latency": Figure("gluster_brick", "ms", ("fop_read_latency_ns",), ("fop_read_count",), 1e-6),
    "write latency": Figure("gluster_brick", "ms", ("fop_write_latency_ns",), ("fop_write_count",), 1e-6),
    "disk await": Figure("diskstats", "ms", ("rd_ms", "wr_ms"), ("rd_ios", "wr_ios"), 1.0),
    "server retransmits": Figure("tcp", "%", ("RetransSegs",), ("OutSegs",), 100.0),
    "retransmits to server": Figure("tcp_destination", "%", ("total_retrans",), ("data_segs_out",), 100.0),
}


def evidence(
    archive: Path, made: Cluster, target: Target, whole_server: bool, start: float, end: float
) -> dict[str, dict[str, float]]:
    """Return by figure the faulty place's value and its peers' lowest, median and highest, over a phase.

    A place of several components has the median of theirs. `start` and `end` are epoch seconds; figures that
    nothing was counted for are left out.
    """
    reader = ArchiveReader(archive)
    found = {}
    for name, figure in FIGURES.items():
        values = _values(reader, figure, start, end)
        places = _places(figure.source, made, target, whole_server)
        faulty = [value for component, value in values.items() if places.get(component) is True]
        peers = [value for component, value in values.items() if places.get(component) is False]
        if faulty and peers:
            found[name] = {
                "faulty": median(faulty),
                "peers_lowest": min(peers),
                "peers": median(peers),
                "peers_highest": max(peers),
            }
    return found


def _places(source: str, made: Cluster, target: Target, whole_server: bool) -> dict[str, bool]:
    """Return the components of a source that are compared, and which of them are the faulty place."""
    if source in ("gluster_brick", "diskstats"):
        return {
            brick.component if source == "gluster_brick" else brick.disk: brick == target.brick
            or (whole_server and brick.server == target.host.name)
            for brick in made.bricks
        }
    if source == "tcp":
        return {f"{server.name}/tcp": server == target.host for server in made.servers}
    return {
        f"{client.name}/{server.address}": server == target.host
        for client in made.clients
        for server in made.servers
    }


def _values(reader: ArchiveReader, figure: Figure, start: float, end: float) -> dict[str, float]:
    """Return a figure by component `node/id`, over the first and last reading between `start` and `end`."""
    counters = (*figure.above, *figure.below)
    table = reader.table("counters", figure.source)
    if not set(counters) <= set(table.column_names):
        return {}
    ends: dict[str, list[tuple[int, Sequence[int]]]] = {}
    wanted = table.select(["node", "component", "tick", *counters]).drop_null()
    names = zip(wanted["node"].to_pylist(), wanted["component"].to_pylist(), strict=True)
    ticks = wanted["tick"].cast("int64").to_pylist()
    values = zip(*(wanted[counter].to_pylist() for counter in counters), strict=True)
    for (node, component), tick, reading in zip(names, ticks, values, strict=True):
        if start <= tick / 1e9 <= end:
            ends.setdefault(f"{node}/{component}", []).append((tick, reading))
    found = {}
    for component, readings in ends.items():
        first, last = min(readings)[1], max(readings)[1]
        rises = [late - early for early, late in zip(first, last, strict=True)]
        above, below = sum(rises[: len(figure.above)]), sum(rises[len(figure.above) :])
        if below > 0:
            found[component] = above * figure.scale / below
    return found
