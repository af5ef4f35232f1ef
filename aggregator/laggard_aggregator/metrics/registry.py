"""Which sources can be compared, and by what. A new source is a file beside this one and a line in it."""

from collections.abc import Mapping

from laggard_aggregator.metrics.block import BLOCK
from laggard_aggregator.metrics.definition import SourceMetrics
from laggard_aggregator.metrics.gluster import GLUSTER
from laggard_aggregator.metrics.lustre import LUSTRE
from laggard_aggregator.metrics.tcp import TCP

SOURCES: Mapping[str, SourceMetrics] = {known.source: known for known in (BLOCK, *LUSTRE, *GLUSTER, TCP)}
