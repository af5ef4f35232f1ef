"""The source `prometheus`: comparisons of a Prometheus server's counters that no other source has.

Peers are the components of one comparison with the same labels, which the map names.
"""

import numpy as np

from laggard_aggregator.metrics.definition import Metric, SourceMetrics, amount, mean, rate, ratio, total
from laggard_aggregator.metrics.shares import Share

_BYTES = ("read_bytes", "written_bytes")

SCRAPED = SourceMetrics(
    source="prometheus",
    defaults=("latency",),
    metrics={
        "latency": mean("ms", ("operations",), ("busy_us",), 1e-3),
        "slow": Share(
            Metric(
                "operations",
                0,
                ("timed", "within"),
                lambda d: np.maximum(d["timed"] - d["within"], 0.0),
                amount=True,
            ),
            amount("operations", ("timed",)),
            harmless=0.01,
        ),
    },
    load={
        "operations": amount("operations", ("operations",)),
        "throughput": Metric("bytes/s", 0, _BYTES, lambda d: total(d, _BYTES) / d.seconds),
        "request_bytes": Metric(
            "bytes", 0, ("operations", *_BYTES), lambda d: ratio(total(d, _BYTES), d["operations"])
        ),
    },
    charts={
        "operations": rate("operations/s", ("operations",)),
        "read_throughput": rate("MB/s", ("read_bytes",), 1e-6),
        "write_throughput": rate("MB/s", ("written_bytes",), 1e-6),
    },
    optional=_BYTES,
    peers=("comparison", "class"),
)

SOURCES = (SCRAPED,)
