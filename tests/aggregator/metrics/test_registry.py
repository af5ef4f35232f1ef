from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.metrics.definition import Differences, SourceMetrics
from laggard_aggregator.metrics.registry import SOURCES
from tests.aggregator.metrics.derived import derive

DOCUMENT = Path(__file__).parents[3] / "docs" / "comparison-metrics.md"
OF_LOAD = {"operations", "throughput", "request_bytes", "read_share", "busy_share"}

every_source = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)


@every_source
def test_an_interval_without_operations_is_zero_throughout(source: SourceMetrics) -> None:
    assert set(derive(source, {}).values()) == {0.0}


@every_source
def test_each_metric_reads_only_what_it_says_it_needs(source: SourceMetrics) -> None:
    columns, load = SourceMetrics.kept(source, list(source.metrics))
    for metric in (*columns.values(), *load.values()):
        d = Differences(metric.needs, np.ones((3, len(metric.needs)), dtype=np.int64), np.ones(3))
        assert metric.derive(d).shape == (3,)


@every_source
@given(rises=st.lists(st.integers(0, 2**40), min_size=1, max_size=8), seconds=st.floats(0.01, 1e5))
def test_metrics_are_finite_and_not_negative(source: SourceMetrics, rises: list[int], seconds: float) -> None:
    counters = [name for some in source.counters(list(source.metrics)) for name in some]
    found = derive(source, {name: rises[at % len(rises)] for at, name in enumerate(counters)}, seconds)
    assert all(np.isfinite(value) and value >= 0 for value in found.values())


@every_source
def test_defaults_and_loads_are_known_and_a_set_of_counters_fits_its_number(source: SourceMetrics) -> None:
    assert set(source.defaults) <= set(source.metrics)
    assert len(source.defaults) <= 4
    assert set(source.load) <= OF_LOAD
    assert all(metric.worse == 1 for name, metric in source.metrics.items() if name in source.defaults)
    _, optional = source.counters(list(source.metrics))
    assert len(optional) <= 100  # sets of them are told apart by sums: engine/routes.py


def test_every_metric_is_documented_as_it_is() -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    documented = [[cell.strip() for cell in row.strip("|").split("|")][:5] for row in rows]
    side = {1: "more", -1: "less", 0: "neither"}
    expected = [
        [f"`{source}`", f"`{name}`", metric.unit, side[metric.worse], "yes" if name in known.defaults else ""]
        for source, known in SOURCES.items()
        for name, metric in known.metrics.items()
    ]
    assert sorted(documented) == sorted(expected)
