"""LWFS forwarding servers: shares of slow requests and queue length at arrival (Beacon 3.2).

Counters are those of the collector's README.md. The bounds of the eight latency buckets are not published, so
no latency can be made of them; but servers of one release have the same, and a slow one has more of its
requests in the upper four than its peers. A server logs all kinds of buckets together, so none of them is
optional.
"""

from laggard_aggregator.metrics.definition import SourceMetrics
from laggard_aggregator.metrics.operations import amount, mean
from laggard_aggregator.metrics.shares import Share

KINDS = tuple(f"{kind}_{phase}" for kind in ("meta", "read", "write") for phase in ("exe", "wait"))
HARMLESS = 0.01
"""Harmless share of slow requests."""

_BUCKETS = 8


def _buckets(kind: str) -> tuple[str, ...]:
    return tuple(f"{kind}_{bucket}" for bucket in range(_BUCKETS))


def _slow(kind: str) -> Share:
    every = _buckets(kind)
    return Share(amount("requests", every[_BUCKETS // 2 :]), amount("requests", every), HARMLESS)


_EXECUTED = tuple(name for kind in KINDS if kind.endswith("_exe") for name in _buckets(kind))

LWFS = SourceMetrics(
    source="lwfs",
    defaults=(),
    metrics={
        **{f"{kind}_slow": _slow(kind) for kind in KINDS},
        "queue_length": mean("requests", [("queue_samples", "queue_length_sum")]),
    },
    load={"operations": amount("requests", _EXECUTED)},
)
