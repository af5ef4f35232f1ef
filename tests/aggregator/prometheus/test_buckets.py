"""Buckets of a real Prometheus server: archived as a histogram, and their tail compared."""

import shutil
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from laggard_aggregator.prometheus.compare_map import Compare, load_map
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_common import config
from laggard_common.errors import ConfigError
from laggard_common.wire.schema import FieldKind
from tests.support.builders.prometheus_blocks import serving
from tests.support.live_scrapes import LiveScrapes

HOUR, SCRAPE = 3600.0, 15.0
MAP = """
[[compare]]
name = "requests"
metric = "latency"
component = ["gateway"]
seconds = ["rq_seconds_sum"]
operations = ["rq_seconds_count"]
buckets = "rq_seconds_bucket"
bounds = ["0.05", "0.25", "1"]
slow_above = "0.25"
"""
SETTINGS = """
[mqtt]
enabled = false
[[prometheus]]
urls = ["{url}"]
maps = ["{map}"]
[[group]]
name = "tails"
source = "prometheus"
components = ".*"
metrics = ["slow"]
"""
USUAL, TAIL = np.array([0.9, 0.0995, 0.0005, 0.0]), np.array([0.9895, 0.0005, 0.0, 0.01])
BOUNDS = ("0.05", "0.25", "1.0", "+Inf")


@dataclass(frozen=True)
class Gateways:
    """Six gateways; the requests of g4 have the mean of the others' and, from `since` on, a tail."""

    start: float
    end: float
    since: float
    known: str = "rq_seconds_count"

    def lines(self) -> Iterator[str]:
        yield "# TYPE rq_seconds histogram\n"
        random, times = np.random.default_rng(3), np.arange(self.start, self.end, SCRAPE)
        for gateway in range(6):
            counts = np.zeros(4, dtype=np.int64)
            total = 0.0
            for at in times.tolist():
                has_tail = gateway == 4 and at >= self.since
                new = random.multinomial(random.poisson(600), TAIL if has_tail else USUAL)
                counts += new
                total += 0.02 * float(new.sum())
                named = f'gateway="g{gateway}",job="s3"'
                for bound, value in zip(BOUNDS, counts.cumsum().tolist(), strict=True):
                    yield f'rq_seconds_bucket{{{named},le="{bound}"}} {value} {at:.3f}\n'
                yield f"rq_seconds_sum{{{named}}} {total:.6f} {at:.3f}\n"
                yield f"rq_seconds_count{{{named}}} {counts.sum()} {at:.3f}\n"
        yield "# EOF\n"


@pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")), reason="needs prometheus and promtool"
)
def test_a_tail_is_found_where_the_mean_is_as_the_others(tmp_path: Path) -> None:
    end = time.time() // 7200 * 7200 - 4 * HOUR
    gateways = Gateways(end - 2.5 * HOUR, end, end - 1.5 * HOUR)
    mine = tmp_path / "mine.toml"
    mine.write_text(MAP)
    with serving(gateways, tmp_path) as url:
        settings = config.parse(AggregatorSettings, tomllib.loads(SETTINGS.format(url=url, map=mine)))
        live = LiveScrapes(settings, gateways.start + 60)
        live.run(end)
    schema = live.batches[-1].schema
    kinds = {one.name: one.kind for one in schema.fields}
    histogram = {"le_0.05", "le_0.25", "le_1", "within", "timed"}
    assert {name for name, kind in kinds.items() if kind is FieldKind.HISTOGRAM} == histogram
    assert all(batch.counters.present is None or batch.counters.present.all() for batch in live.batches)
    assert live.input.view.ambiguous == 0
    tails = [event for _, event in live.events if event.alarm.group == "tails"]
    assert [event.kind for event in tails] == ["raised"]
    assert tails[0].alarm.component.endswith("g4 requests")
    assert not [event for _, event in live.events if event.alarm.group != "tails"]


def test_buckets_go_with_their_bounds(tmp_path: Path) -> None:
    for line, told in (
        ('bounds = ["0.05", "fast"]', "no bound of a bucket: 'fast'"),
        ('slow_above = "0.5"', "slow_above: expected one of 0.05, 0.25, 1"),
        ('buckets = "a-b"', "no name of a metric: 'a-b'"),
    ):
        name = line.partition(" ")[0]
        text = "\n".join(line if one.startswith(name) else one for one in MAP.splitlines())
        mine = tmp_path / "mine.toml"
        mine.write_text(text)
        with pytest.raises(ConfigError) as failure:
            load_map(str(mine))
        assert told in str(failure.value)
    table = Compare("a", "latency", ("gateway",), ("s",), ("n",), buckets="b")
    assert list(table.problems()) == [("buckets", "goes with bounds and slow_above")]
