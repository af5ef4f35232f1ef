"""Metrics and loads of one component, from how much its counters rose."""

from collections.abc import Mapping

import numpy as np

from laggard_aggregator.metrics.definition import Differences, SourceMetrics


def derive(source: SourceMetrics, rises: Mapping[str, int], seconds: float = 1.0) -> dict[str, float]:
    """What is made of differences for all metrics of `source`, then its loads as `load.<name>`.

    Counters that are not named did not rise. A metric that is a load is there once.
    """
    required, optional = source.counters(list(source.metrics))
    counters = (*required, *optional)
    assert set(rises) <= set(counters)
    d = Differences(counters, np.array([[rises.get(c, 0) for c in counters]]), np.array([seconds]))
    columns, load = SourceMetrics.kept(source, list(source.metrics))
    found = {name: float(m.derive(d)[0]) for name, m in columns.items() if m is not load.get(name)}
    return found | {f"load.{name}": float(metric.derive(d)[0]) for name, metric in load.items()}
