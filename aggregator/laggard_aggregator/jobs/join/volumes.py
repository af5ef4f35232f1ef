"""Counters of volumes and operations: the fields of each source, and the layer at which it counts.

Only one source of a layer counts a byte: a client's mounts are one layer, whatever file system they are of,
and the disks below a server are none, as they would count its bytes twice.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, FloatArray
from laggard_aggregator.jobs.rollups.increments import Increments

CLIENT, FORWARDER, SERVER, METADATA = LAYERS = ("client", "forwarder", "server", "metadata")
READ, WRITTEN, OPERATIONS = range(3)
"""Places of a job's series: bytes read, bytes written, metadata operations."""

_LLITE = "open close mknod link unlink symlink mkdir rmdir rename getattr setattr getxattr setxattr statfs"
_MDT = "open close mknod link unlink mkdir rmdir rename getattr setattr getxattr setxattr statfs sync"
_NFS = (
    "GETATTR SETATTR LOOKUP ACCESS OPEN CREATE MKDIR SYMLINK MKNOD REMOVE RMDIR RENAME LINK READDIR"
    " READDIRPLUS"
)
_GLUSTER = (
    "lookup stat fstat open create flush truncate link unlink symlink mkdir rmdir rename opendir readdirp"
    " getxattr setxattr setattr fsetattr statfs"
)
_DUMP_NS: Final = 1_000_000_000
"""Recommended interval of GlusterFS's dumps, `diagnostics.stats-dump-interval`."""


@dataclass(frozen=True, slots=True)
class VolumeFields:
    """Fields of a source by their meaning; empty where it has none.

    `read`, `written`: bytes; `reads`, `writes`: operations; `read_time`, `write_time`, `metadata_time`:
    summed latencies, times `time_scale` seconds. `by_job`: components are named by a job's id on a target.
    """

    layer: str
    read: str = ""
    written: str = ""
    reads: str = ""
    writes: str = ""
    metadata: tuple[str, ...] = ()
    read_time: str = ""
    write_time: str = ""
    metadata_time: tuple[str, ...] = ()
    time_scale: float = 1e-6
    by_job: bool = False
    of_volume: bool = False
    age_ns: int = 0


SOURCES: Final[Mapping[str, VolumeFields]] = {
    "lustre_llite": VolumeFields(
        CLIENT,
        *("read_bytes_sum", "write_bytes_sum", "read_bytes_samples", "write_bytes_samples"),
        metadata=tuple(f"{name}_samples" for name in _LLITE.split()),
        read_time="read_sum",
        write_time="write_sum",
        metadata_time=tuple(f"{name}_sum" for name in _LLITE.split()),
    ),
    "nfs_mount": VolumeFields(
        CLIENT,
        *("READ_bytes_recv", "WRITE_bytes_sent", "READ_ops", "WRITE_ops"),
        metadata=tuple(f"{name}_ops" for name in _NFS.split()),
        read_time="READ_execute_ms",
        write_time="WRITE_execute_ms",
        time_scale=1e-3,
    ),
    "gluster_client": VolumeFields(
        CLIENT,
        *("bytes_read", "bytes_written", "fop_read_count", "fop_write_count"),
        metadata=tuple(f"fop_{name}_count" for name in _GLUSTER.split()),
        read_time="fop_read_latency_ns",
        write_time="fop_write_latency_ns",
        metadata_time=tuple(f"fop_{name}_latency_ns" for name in _GLUSTER.split()),
        time_scale=1e-9,
        age_ns=_DUMP_NS,
    ),
    "gluster_brick": VolumeFields(
        SERVER,
        *("bytes_read", "bytes_written", "fop_read_count", "fop_write_count"),
        read_time="fop_read_latency_ns",
        write_time="fop_write_latency_ns",
        time_scale=1e-9,
        of_volume=True,
        age_ns=_DUMP_NS,
    ),
    "lustre_job_ost": VolumeFields(
        SERVER, "read_bytes_sum", "write_bytes_sum", "read_bytes_samples", "write_bytes_samples", by_job=True
    ),
    "lustre_job_mdt": VolumeFields(
        METADATA, metadata=tuple(f"{name}_samples" for name in _MDT.split()), by_job=True
    ),
}


@dataclass(frozen=True, slots=True)
class Amounts:
    """Of N increments: `moved` (3, N) by READ, WRITTEN and OPERATIONS, `operations` (2, N) reads and writes,
    `latency` (3, N) of these and metadata operations, raw; `known` (N,): whether the volumes are."""

    moved: FloatArray
    operations: FloatArray
    latency: FloatArray
    known: BoolArray


def amounts(fields: VolumeFields, increments: Increments) -> Amounts:
    """The increments by their meaning; a field that the source lacks, as it never counted, is 0."""
    return Amounts(
        _sums(increments, (fields.read,), (fields.written,), fields.metadata),
        _sums(increments, (fields.reads,), (fields.writes,)),
        _sums(increments, (fields.read_time,), (fields.write_time,), fields.metadata_time),
        increments.before_ns < increments.read_ns,
    )


def _sums(increments: Increments, *names: tuple[str, ...]) -> FloatArray:
    """Rises of some fields together; one row for each of `names`."""
    sums = np.zeros((len(names), increments.tick_ns.size))
    for row, fields in enumerate(names):
        for name in fields:
            if name in increments.rises:
                sums[row] += increments.rises[name]
    return sums


_TARGET: Final = re.compile(r"[A-Za-z0-9_]+-(?:OST|MDT)[0-9a-fA-F]{4}")


def targets(component: str) -> set[str]:
    """OSTs and MDTs that a name has in it; empty for a component of another kind."""
    return set(_TARGET.findall(component))


def is_ost(target: str) -> bool:
    """Whether a target is an OST, not an MDT."""
    return target.rpartition("-")[2].startswith("OST")
