"""The charts of load that each source names: documented, and derived as sysstat does."""

import re
from pathlib import Path

import numpy as np
import pytest

from laggard_aggregator.metrics.block import BLOCK
from laggard_aggregator.metrics.definition import Differences
from laggard_aggregator.metrics.registry import SOURCES

DOCUMENT = (Path(__file__).parents[3] / "docs" / "comparison-metrics.md").read_text()


def documented() -> dict[str, set[str]]:
    """Charts by source, as the table has them."""
    table = DOCUMENT.partition("| source | charts |")[2].partition("\n\n")[0]
    found: dict[str, set[str]] = {}
    before: set[str] = set()
    for line in table.splitlines()[2:]:
        _, sources, charts, _ = line.split("|")
        names = set(re.findall(r"`(\w+)`", charts)) | (before if "the same" in charts else set())
        found |= dict.fromkeys(map(str.strip, sources.split(",")), names)
        before = names
    return found


def test_every_source_names_its_charts_and_the_document_has_them() -> None:
    assert documented() == {name: set(source.charts) for name, source in SOURCES.items()}
    assert all(source.charts for source in SOURCES.values())


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_charts_cost_no_memory_of_a_component(name: str) -> None:
    """A chart needs no counter beyond those of the source's metrics and load, and is kept nowhere."""
    source = SOURCES[name]
    told = {each for metric in (*source.metrics.values(), *source.load.values()) for each in metric.needs}
    assert told.issuperset(each for chart in source.charts.values() for each in chart.needs)
    columns, load = source.kept(source.defaults or tuple(source.metrics)[:1])
    assert set(load) == set(source.load) or not load
    assert not {"read_throughput", "queue", "utilisation"} & {*columns, *load}


def test_a_disk_as_iostat_has_it() -> None:
    counters = ("rd_ios", "rd_sectors", "rd_ms", "wr_ios", "wr_sectors", "wr_ms", "io_ms", "weighted_ms")
    rises = np.array([[200, 3200, 400, 100, 12_800, 900, 5_000, 1_300]], dtype=np.int64)
    found = Differences(counters, rises, np.array([10.0]))
    values = {name: float(chart.derive(found)[0]) for name, chart in BLOCK.charts.items()}
    assert values == pytest.approx(
        {
            "r_await": 2.0,
            "w_await": 9.0,
            "reads": 20.0,
            "writes": 10.0,
            "read_throughput": 0.16384,
            "write_throughput": 0.65536,
            "request_size": 16_000 * 0.512 / 300,
            "queue": 0.13,
            "utilisation": 50.0,
        }
    )
