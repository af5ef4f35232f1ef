"""The network of a storage server, held against what its own disks moved; source `server`.

A server that has more to do than its peers moves more over the network and over its disks alike. Traffic that
its disks do not explain is foreign: another program's stream, or data that is sent again and again. Counters
are those of /proc/net/dev and /proc/diskstats, summed over the node's interfaces and disks. What counts twice
(a bond and its members, a disk and the md above it) does so on all peers.
"""

from laggard_aggregator.metrics.block import SECTOR_BYTES
from laggard_aggregator.metrics.definition import Differences, FloatArray, Metric
from laggard_aggregator.metrics.joined import JoinedMetrics
from laggard_aggregator.metrics.operations import total

IDLE_BYTES_PER_S = 65_536.0
"""Added to what disks move, so that the chatter of an idle server is no anomaly."""

_SECTORS = ("rd_sectors", "wr_sectors", "dc_sectors")


def _per_moved(unit: str, counter: str) -> Metric:
    """The rise of `counter` for each byte that the disks moved."""

    def derive(d: Differences) -> FloatArray:
        moved = total(d, _SECTORS) * SECTOR_BYTES / d.seconds
        return d[counter] / d.seconds / (moved + IDLE_BYTES_PER_S)

    return Metric(unit, +1, (counter, *_SECTORS), derive)


SERVER = JoinedMetrics(
    source="server",
    defaults=("rx_per_moved", "tx_per_moved", "tx_packets_per_moved"),
    metrics={
        "rx_per_moved": _per_moved("1", "rx_bytes"),
        "tx_per_moved": _per_moved("1", "tx_bytes"),
        "tx_packets_per_moved": _per_moved("packets/byte", "tx_packets"),
    },
    optional=("dc_sectors",),
    parts={"net": ("rx_bytes", "tx_bytes", "tx_packets"), "diskstats": _SECTORS},
    roles=("storage",),
)
