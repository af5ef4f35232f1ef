"""Network traffic of a storage server relative to the traffic of its own disks; source `server`.

A busier server moves more over network and disks alike. Traffic beyond its disks' is foreign: another
program's stream, or retransmitted data. Counters are those of /proc/net/dev and /proc/diskstats, summed over
the node's interfaces and disks. Double counting (a bond and its members, a disk and the md above it) is the
same on all peers.
"""

import numpy as np

from laggard_aggregator.metrics.block import SECTOR_BYTES
from laggard_aggregator.metrics.definition import (
    KERNEL_MESSAGES,
    Differences,
    FloatArray,
    Metric,
    NextStep,
    rate,
    total,
)
from laggard_aggregator.metrics.sums import JoinedMetrics

IDLE_BYTES_PER_S = 65_536.0
"""Added to both sides of the quotient, so that neither the background traffic of a nearly idle server is
anomalous nor a load that is small beside it."""
OVERHEAD = 0.03
"""Requests and acknowledgements: bytes against the direction of the data, per byte of data."""
USUAL = 1.0
"""Added to the bytes sent or received per byte moved: only a stream of about a third of a server's own work
or more counts. The page cache alone makes healthy servers differ by part of that."""
SEGMENT_BYTES = 1448.0
IDLE_PACKET_SHARE = 0.5
"""Packets that are granted, of the segments of IDLE_BYTES_PER_S: interfaces that segment count few, others
all."""
MIN_PACKET_BYTES_PER_S = 4.0 * IDLE_BYTES_PER_S
"""Traffic below which packets are not measured: what is granted would decide."""

_SECTORS = ("rd_sectors", "wr_sectors", "dc_sectors")


def _per_moved(
    unit: str,
    counter: str,
    *,
    reads: float,
    writes: float,
    unit_bytes: float = 1.0,
    idle_share: float = 1.0,
    least: float = 0.0,
) -> Metric:
    """USUAL plus the increase of `counter`, in units of `unit_bytes`, per byte that the disks moved.

    `reads` and `writes` weight bytes read (sent to clients) and bytes written (received from them).
    `idle_share`: of IDLE_BYTES_PER_S, that is counted. `least`: bytes a second, moved and counted, below
    which nothing is measured.
    """

    def derive(d: Differences) -> FloatArray:
        read, written = total(d, _SECTORS[:1]), total(d, _SECTORS[1:])
        moved = (reads * read + writes * written) * SECTOR_BYTES / d.seconds
        sent = d[counter] * unit_bytes / d.seconds
        quotient = (sent + idle_share * IDLE_BYTES_PER_S) / (moved + IDLE_BYTES_PER_S)
        measured = (sent > 0) & (sent + moved >= least)
        return np.where(measured, (USUAL + quotient) / unit_bytes, 0.0)

    return Metric(unit, +1, (counter, *_SECTORS), derive, explains=True)


SERVER = JoinedMetrics(
    source="server",
    place="network",
    defaults=("rx_per_moved", "tx_per_moved", "tx_packets_per_moved"),
    metrics={
        "rx_per_moved": _per_moved("1", "rx_bytes", reads=OVERHEAD, writes=1.0),
        "tx_per_moved": _per_moved("1", "tx_bytes", reads=1.0, writes=OVERHEAD),
        "tx_packets_per_moved": _per_moved(
            "packets/byte",
            "tx_packets",
            reads=1.0,
            writes=0.5,
            unit_bytes=SEGMENT_BYTES,
            idle_share=IDLE_PACKET_SHARE,
            least=MIN_PACKET_BYTES_PER_S,
        ),
    },
    charts={
        "received": rate("MB/s", ["rx_bytes"], 1e-6),
        "sent": rate("MB/s", ["tx_bytes"], 1e-6),
        "disks_read": rate("MB/s", ["rd_sectors"], SECTOR_BYTES * 1e-6),
        "disks_written": rate("MB/s", ["wr_sectors"], SECTOR_BYTES * 1e-6),
    },
    optional=("dc_sectors",),
    parts={"net": ("rx_bytes", "tx_bytes", "tx_packets"), "diskstats": _SECTORS},
    roles=("storage",),
    next_steps=(
        NextStep("its disks", "ssh {node} iostat -x 5"),
        NextStep("drops and errors of its ports", "ssh {node} ip -s link"),
        KERNEL_MESSAGES,
    ),
)

SOURCES = (SERVER,)
