"""Latencies of GlusterFS's file operations (FOPs), of bricks and of mounted volumes.

Counters are those of the collector's README.md. Reads, writes and bytes have columns from an agent's first
sample on; any other FOP has one once it has been called on the node.
"""

from laggard_aggregator.metrics.definition import SourceMetrics
from laggard_aggregator.metrics.operations import mean, transfers

OTHER_FOPS = (
    *("lookup", "stat", "fstat", "open", "create", "flush", "fsync", "truncate", "ftruncate", "unlink"),
    *("mkdir", "rmdir", "rename", "opendir", "readdir", "readdirp", "getxattr", "setxattr", "setattr"),
)
"""FOPs of `fop_latency` besides reads and writes. Locks are excluded: they wait for other clients."""

_NS_IN_US = 1e-3


def _pair(fop: str) -> tuple[str, str]:
    return f"fop_{fop}_count", f"fop_{fop}_latency_ns"


def _fops(source: str, defaults: tuple[str, ...]) -> SourceMetrics:
    return SourceMetrics(
        source=source,
        defaults=defaults,
        metrics={
            "read_latency": mean("us", [_pair("read")], _NS_IN_US),
            "write_latency": mean("us", [_pair("write")], _NS_IN_US),
            "fop_latency": mean("us", [_pair(fop) for fop in ("read", "write", *OTHER_FOPS)], _NS_IN_US),
        },
        load=transfers(("fop_read_count", "fop_write_count"), ("bytes_read", "bytes_written")),
        optional=tuple(name for fop in OTHER_FOPS for name in _pair(fop)),
        peers=("volume",),
    )


GLUSTER = (_fops("gluster_brick", ("read_latency", "write_latency")), _fops("gluster_client", ()))
