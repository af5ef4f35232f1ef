"""Lustre's latencies: of targets as their servers see them, of RPCs as clients do, and of servers' queues.

Counters are those of `stats` and `md_stats` (the collector's README.md): `<operation>_samples` and
`<operation>_sum`. Lustre omits operations that never occurred, and so does an agent while no device of its
node has them; OST and MDT operations have times from 2.14 on. Hence all but the services' own are optional.
"""

from collections.abc import Mapping, Sequence

from laggard_aggregator.metrics.definition import Metric, SourceMetrics
from laggard_aggregator.metrics.operations import amount, mean, transfers

OST_OPERATIONS = ("read", "write", "create", "destroy", "getattr", "setattr", "punch", "sync", "statfs")
MDT_OPERATIONS = (
    *("open", "close", "mknod", "link", "unlink", "mkdir", "rmdir", "rename", "getattr", "setattr"),
    *("getxattr", "setxattr", "statfs", "sync"),
)
MDC_OPERATIONS = ("mds_getattr", "mds_getxattr", "mds_close", "mds_readpage", "mds_sync")
_BYTES = transfers(("read_bytes_samples", "write_bytes_samples"), ("read_bytes_sum", "write_bytes_sum"))


def _pair(counter: str) -> tuple[str, str]:
    return f"{counter}_samples", f"{counter}_sum"


def _latency(counter: str) -> Metric:
    return mean("us", [_pair(counter)])


def _latencies(operations: Sequence[str], prefix: str = "") -> dict[str, Metric]:
    return {f"{name.removeprefix(prefix)}_latency": _latency(name) for name in operations}


def _counters(*metrics: Mapping[str, Metric]) -> tuple[str, ...]:
    """All counters of these metrics, each once."""
    return tuple(dict.fromkeys(name for some in metrics for metric in some.values() for name in metric.needs))


def _target(source: str, defaults: tuple[str, ...], operations: Sequence[str]) -> SourceMetrics:
    metrics = _latencies(operations)
    load = {"operations": amount("operations", [f"{name}_samples" for name in operations])}
    if "read" in operations:
        load = dict(_BYTES)
    return SourceMetrics(source, defaults, metrics, load, _counters(metrics, load), peers=("fs",))


def _client(source: str, defaults: tuple[str, ...], operations: Sequence[str], prefix: str) -> SourceMetrics:
    metrics = {
        **_latencies(operations, prefix),
        "rpc_latency": _latency("req_waittime"),
        "rpcs_in_flight": mean("RPCs", [_pair("req_active")]),
    }
    load = {"operations": amount("operations", ["req_waittime_samples"])}
    if "ost_read" in operations:
        load = dict(_BYTES)
    optional = _counters(metrics, load)
    return SourceMetrics(source, defaults, metrics, load, optional, peers=("fs",), one_node=True)


def _service(source: str) -> SourceMetrics:
    metrics = {
        "wait_time": _latency("req_waittime"),
        "queue_depth": mean("requests", [_pair("req_qdepth")]),
        "active_requests": mean("requests", [_pair("req_active")]),
    }
    load = {"operations": amount("requests", ["req_waittime_samples"])}
    return SourceMetrics(source, ("wait_time",), metrics, load, peers=("service",))


LUSTRE = (
    _target("lustre_ost", ("read_latency", "write_latency"), OST_OPERATIONS),
    _target("lustre_mdt", ("open_latency", "getattr_latency"), MDT_OPERATIONS),
    _client("lustre_osc", ("read_latency", "write_latency"), ("ost_read", "ost_write", "ost_sync"), "ost_"),
    _client("lustre_mdc", (), MDC_OPERATIONS, "mds_"),
    _service("lustre_oss_service"),
    _service("lustre_mds_service"),
)
