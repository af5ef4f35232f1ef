"""Which sources can be compared, and by what. A new source is a file beside this one and a line in it."""

from collections.abc import Mapping

from laggard_aggregator.metrics.block import BLOCK
from laggard_aggregator.metrics.definition import SourceMetrics
from laggard_aggregator.metrics.functions import FUNCTIONS
from laggard_aggregator.metrics.gluster import GLUSTER
from laggard_aggregator.metrics.lustre import LUSTRE
from laggard_aggregator.metrics.lwfs import LWFS
from laggard_aggregator.metrics.server import SERVER
from laggard_aggregator.metrics.sums import JoinedMetrics
from laggard_aggregator.metrics.tcp import TCP, TCP_DESTINATION

SOURCES: Mapping[str, SourceMetrics] = {
    known.source: known for known in (BLOCK, *LUSTRE, *GLUSTER, LWFS, TCP, TCP_DESTINATION, SERVER)
}

_SENT = {name for known in SOURCES.values() for name in getattr(known, "parts", {known.source: ()})}
COMPARED_AS: Mapping[str, tuple[SourceMetrics, ...]] = {
    sent: tuple(
        known
        for known in SOURCES.values()
        if sent in (known.parts if isinstance(known, JoinedMetrics) else (known.source,))
    )
    for sent in _SENT
}
"""By source that agents send: what its components are compared as, by themselves and as parts of sums."""


def unit(source: str, metric: str) -> str:
    """The unit of a source's metric, empty when the metric is not known here."""
    known = FUNCTIONS.get(source) or SOURCES.get(source)
    return known.metrics[metric].unit if known is not None and metric in known.metrics else ""
