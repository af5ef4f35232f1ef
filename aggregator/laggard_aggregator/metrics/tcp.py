"""TCP's retransmits, of a whole node: packet loss shows here long before it shows in a file system.

Counters are those of /proc/net/snmp (RFC 4022). OutSegs leaves out segments that hold retransmitted bytes
alone, so the share is of what was to be sent, as netstat's users know it.
"""

import numpy as np

from laggard_aggregator.metrics.definition import Differences, FloatArray, Metric, SourceMetrics, ratio
from laggard_aggregator.metrics.operations import amount

HARMLESS_PERCENT = 1.0
"""What `retrans_plus_one` adds."""


def _retrans(d: Differences) -> FloatArray:
    return ratio(d["RetransSegs"] * 100, d["OutSegs"])


def _retrans_plus_one(d: Differences) -> FloatArray:
    """Comparable by ratio: nearly all nodes have a share of 0 or little more, and these are alike."""
    return np.where(d["OutSegs"] > 0, _retrans(d) + HARMLESS_PERCENT, 0.0)


_COUNTERS = ("RetransSegs", "OutSegs")

TCP = SourceMetrics(
    source="tcp",
    defaults=("retrans_plus_one",),
    metrics={
        "retrans": Metric("%", +1, _COUNTERS, _retrans),
        "retrans_plus_one": Metric("%", +1, _COUNTERS, _retrans_plus_one),
    },
    load={"operations": amount("segments", ["OutSegs"])},
)
