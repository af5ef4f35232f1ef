"""Kinds of components whose load is shown, and the counters that tell it.

A node's load is that of its mounts, as Beacon has it for compute and forwarding nodes (NSDI '19, Figs. 5 and
10); that of a target, brick, OSD or disk is counted where it is served.
"""

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from laggard_aggregator.archive.table import tables_of
from laggard_aggregator.jobs.join.volumes import CLIENT, SOURCES, VolumeFields
from laggard_aggregator.jobs.rollups.series60 import KIND
from laggard_aggregator.metrics.block import SECTOR_BYTES
from laggard_common.wire.topics import ROLES

_MB: Final = 1e6


@dataclass(frozen=True, slots=True)
class LoadFields:
    """Counters of a source: `amounts`, times `amount_scale`, are bytes or metadata operations; `requests`
    took `times`, times `time_scale` seconds, together."""

    amounts: tuple[str, ...]
    requests: tuple[str, ...]
    times: tuple[str, ...]
    time_scale: float = 1e-6
    amount_scale: float = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys((*self.amounts, *self.requests, *self.times)))


@dataclass(frozen=True, slots=True)
class LoadKind:
    """A kind of components: all of `sources` on nodes of `roles`.

    `noun`: one of them. What is `counted` a second is shown in `unit`, of `unit_amount` a second.
    `has_nodes`: they are nodes, each with all its components; otherwise components, known by name alone where
    `names_are_unique`.
    """

    title: str
    noun: str
    sources: Mapping[str, LoadFields]
    roles: Collection[str] = ROLES
    counted: str = "bytes"
    unit: str = "MB/s"
    unit_amount: float = _MB
    has_nodes: bool = False
    names_are_unique: bool = False

    def label(self, node: str, name: str) -> str:
        """The component's name on the page."""
        if self.has_nodes:
            return node
        return name if self.names_are_unique else f"{node}/{name}"


def _of_client(fields: VolumeFields) -> LoadFields:
    return LoadFields(
        (fields.read, fields.written),
        (fields.reads, fields.writes),
        (fields.read_time, fields.write_time),
        fields.time_scale,
    )


_CLIENTS: Final = {name: _of_client(fields) for name, fields in SOURCES.items() if fields.layer == CLIENT}
_OPERATIONS: Final = SOURCES["lustre_job_mdt"].metadata
_OPERATION_TIMES: Final = tuple(f"{name.removesuffix('_samples')}_sum" for name in _OPERATIONS)

COMPUTE, FORWARDERS = "compute", "forwarders"
KINDS: Final[Mapping[str, LoadKind]] = {
    FORWARDERS: LoadKind("Forwarders", "forwarder", _CLIENTS, ("forwarding",), has_nodes=True),
    "osts": LoadKind(
        "OSTs",
        "OST",
        {
            "lustre_ost": LoadFields(
                ("read_bytes_sum", "write_bytes_sum"),
                ("read_samples", "write_samples"),
                ("read_sum", "write_sum"),
            )
        },
        names_are_unique=True,
    ),
    "mdts": LoadKind(
        "MDTs",
        "MDT",
        {"lustre_mdt": LoadFields(_OPERATIONS, _OPERATIONS, _OPERATION_TIMES)},
        counted="operations",
        unit="operations/s",
        unit_amount=1.0,
        names_are_unique=True,
    ),
    "bricks": LoadKind("Bricks", "brick", {"gluster_brick": _of_client(SOURCES["gluster_brick"])}),
    "osds": LoadKind(
        "OSDs",
        "OSD",
        {
            "ceph_osd": LoadFields(
                ("op_r_out_bytes", "op_w_in_bytes", "subop_w_in_bytes"),
                ("op_r_latency_count", "op_w_latency_count", "subop_w_latency_count"),
                ("op_r_latency_us", "op_w_latency_us", "subop_w_latency_us"),
            )
        },
    ),
    "disks": LoadKind(
        "Disks",
        "disk",
        {
            "diskstats": LoadFields(
                ("rd_sectors", "wr_sectors", "dc_sectors"),
                ("rd_ios", "wr_ios", "dc_ios"),
                ("rd_ms", "wr_ms", "dc_ms"),
                time_scale=1e-3,
                amount_scale=SECTOR_BYTES,
            )
        },
        tuple(role for role in ROLES if role != "compute"),
    ),
    COMPUTE: LoadKind("Compute nodes", "compute node", _CLIENTS, ("compute",), has_nodes=True),
}
"""Kinds by name in URLs; the first that a site has is shown first."""


def known_kinds(directory: Path, roles: Set[str]) -> list[str]:
    """The kinds with rollups in the archive; those of nodes only where a node has their role, one of
    `roles`.
    """
    sources = {table.source for table in tables_of(directory, KIND)}
    served = {name: kind for name, kind in KINDS.items() if not sources.isdisjoint(kind.sources)}
    return [name for name, kind in served.items() if not kind.has_nodes or not roles.isdisjoint(kind.roles)]
