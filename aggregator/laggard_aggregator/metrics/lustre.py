"""Lustre clients as a whole: the times of a client's requests over all its OSTs.

A client that is slow to every OST is like its peers in a comparison of its OSTs; and one OST gets few of its
requests. Their sum separates clients. Only for a `[[group]]`, as clients of different jobs are no peers.
"""

from laggard_aggregator.metrics.definition import KERNEL_MESSAGES, NextStep, mean, transfer_charts, transfers
from laggard_aggregator.metrics.sums import JoinedMetrics

_COUNTS = ("read_bytes_samples", "write_bytes_samples")
_BYTES = ("read_bytes_sum", "write_bytes_sum")
_ALL = ("ost_read_samples", "ost_read_sum", "ost_write_samples", "ost_write_sum", *_COUNTS, *_BYTES)

CLIENT = JoinedMetrics(
    source="lustre_client",
    place="client",
    defaults=(),
    metrics={
        "read_latency": mean("us", ("ost_read_samples",), ("ost_read_sum",)),
        "write_latency": mean("us", ("ost_write_samples",), ("ost_write_sum",)),
    },
    load=transfers(_COUNTS, _BYTES),
    charts=transfer_charts(_COUNTS, _BYTES),
    parts={"lustre_osc": _ALL},
    optional=_ALL,
    next_steps=(
        NextStep("its requests", "ssh {node} lctl get_param osc.*.rpc_stats"),
        NextStep("drops and errors of its ports", "ssh {node} ip -s link"),
        KERNEL_MESSAGES,
    ),
)

SOURCES = (CLIENT,)
