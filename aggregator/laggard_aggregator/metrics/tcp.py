"""TCP retransmits: packet loss shows here long before it shows in a file system.

Per node from /proc/net/snmp (RFC 4022) and /proc/net/dev; and over all nodes towards one remote address, from
the kernel's sockets (struct tcp_info). `shares` defines the compared value.
"""

import numpy as np

from laggard_aggregator.metrics.definition import (
    KERNEL_MESSAGES,
    Differences,
    FloatArray,
    Metric,
    NextStep,
    amount,
    rate,
)
from laggard_aggregator.metrics.shares import Share
from laggard_aggregator.metrics.sums import JoinedMetrics

HARMLESS = 0.001
"""Harmless share of retransmitted segments. A timeout lasts 200 ms, so 1 % is slow already."""
HEADER_BYTES = 66.0
"""Ethernet, IPv4, and TCP with time stamps."""
SEGMENT_BYTES = 1448.0
"""Data bytes of a segment at the usual MTU of 1500."""


def _data_segments(d: Differences) -> FloatArray:
    """Estimated number of full data segments sent, at least the retransmitted ones.

    OutSegs is unsuitable: most segments of a server that receives writes are pure acknowledgements, which are
    never retransmitted.
    """
    data = (d["tx_bytes"] - HEADER_BYTES * d["tx_packets"]) / SEGMENT_BYTES
    sent: FloatArray = np.maximum(data, d["RetransSegs"])
    return sent


TCP = JoinedMetrics(
    source="tcp",
    place="network",
    defaults=("retransmits",),
    metrics={
        "retransmits": Share(
            amount("segments", ["RetransSegs"]),
            Metric("segments", 0, ("tx_bytes", "tx_packets", "RetransSegs"), _data_segments, amount=True),
            HARMLESS,
        ),
    },
    charts={"sent": rate("MB/s", ["tx_bytes"], 1e-6), "packets_sent": rate("packets/s", ["tx_packets"])},
    parts={"tcp": ("RetransSegs",), "net": ("tx_bytes", "tx_packets")},
    next_steps=(
        NextStep("drops and errors of its ports", "ssh {node} ip -s link"),
        NextStep("retransmits by connection", "ssh {node} ss -ti"),
        KERNEL_MESSAGES,
    ),
)

TCP_DESTINATION = JoinedMetrics(
    source="tcp_destination",
    place="network",
    defaults=("retransmits",),
    metrics={
        "retransmits": Share(
            amount("segments", ["total_retrans"]), amount("segments", ["data_segs_out"]), HARMLESS
        ),
    },
    charts={"segments_sent": rate("segments/s", ["data_segs_out"])},
    parts={"tcp_destination": ("total_retrans", "data_segs_out")},
    by_node=False,
    next_steps=(NextStep("the way there", "mtr -rwc 20 {device}"),),
)

SOURCES = (TCP, TCP_DESTINATION)
