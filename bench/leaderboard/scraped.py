"""The series of a Prometheus server: as it has them, and the labelled drives as counters in its blocks."""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench.leaderboard.labels import UNITS
from bench.leaderboard.series import METRIC
from laggard_aggregator.cli.user_times import epoch_seconds
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.offline.prometheus_input import (
    Span,
    aligned,
    fitting_map,
    least_interval,
    read_prometheus,
)
from laggard_aggregator.offline.sample_grid import NS, Grid
from laggard_aggregator.prometheus.compare_map import CompareMap, load_map
from laggard_aggregator.prometheus.server import PrometheusServer
from tests.support.builders.prometheus_blocks import serving

REQUESTS = 1000.0
"""Requests of a drive in an interval with I/O: the data have none, and only quotients count."""
SCRAPES_AN_INTERVAL = 2
LOAD = "throughput"


def read_server(args: argparse.Namespace) -> list[Grid]:
    """The groups of `--prometheus`, as `laggard diagnose` reads them. Raises LaggardError."""
    server = PrometheusServer(args.prometheus)
    until = epoch_seconds("--to", args.until) or time.time()
    since = epoch_seconds("--from", args.since or "-1d") or until
    compare_map = load_map(args.map) if args.map else fitting_map(server, until)
    interval = args.interval or least_interval(server, compare_map, until)
    return _grids(server, compare_map, aligned(since, until, interval), args.window)


def _grids(server: PrometheusServer, compare_map: CompareMap, span: Span, window: int) -> list[Grid]:
    return [
        replace(
            grid,
            metrics={METRIC: UNITS["ms"] * next(iter(grid.metrics.values()))},
            load={LOAD: grid.load[LOAD]} if LOAD in grid.load else {},
        )
        for grid in read_prometheus(server, compare_map, span, window, [])
    ]


@dataclass(frozen=True)
class _Exported:
    """Drives as node_exporter's counters, a scrape a sample; the job is the group."""

    grids: Sequence[Grid]
    known: str = "node_disk_read_time_seconds_total"

    @property
    def end(self) -> float:
        """Time of the last sample, by which every series of it is known."""
        return (
            max(float(_times(grid)[np.isfinite(grid.metrics[METRIC]).any(axis=0)][-1]) for grid in self.grids)
            + 60
        )

    def lines(self) -> Iterator[str]:
        """OpenMetrics text with times."""
        for name in (
            "read_time_seconds",
            "reads_completed",
            "read_bytes",
            "written_bytes",
            "writes_completed",
            "write_time_seconds",
        ):
            yield f"# TYPE node_disk_{name} counter\n"
            for grid in self.grids:
                latency, seconds = grid.metrics[METRIC], grid.interval_ns / NS
                requests = np.where(latency > 0, REQUESTS, 0.0)
                rises = {
                    "read_time_seconds": requests * latency / UNITS["s"],
                    "reads_completed": requests,
                    "read_bytes": grid.load[LOAD] * seconds,
                }.get(name, np.zeros(latency.shape))
                for row, drive in enumerate(grid.components):
                    known = np.isfinite(latency[row])
                    values = np.nan_to_num(rises[row][known]).cumsum()
                    labels = f'{{job="{grid.group}",instance="{grid.group}",device="{drive}"}}'
                    for at, value in zip(_times(grid)[known].tolist(), values.tolist(), strict=True):
                        yield f"node_disk_{name}_total{labels} {value!r} {at:.3f}\n"
        yield "# EOF\n"


def _times(grid: Grid) -> "np.ndarray":
    size = grid.block_samples
    number = (grid.blocks[:, None] * size + np.arange(1, size + 1)).ravel()
    return number.astype(np.float64) * (grid.interval_ns / NS)


def through_prometheus(grids: Sequence[Grid], settings: DetectSettings) -> tuple[list[Grid], DetectSettings]:
    """The groups as a real server gives them back, with settings for windows of the same length."""
    settings = replace(
        settings,
        interval_seconds=SCRAPES_AN_INTERVAL * settings.interval_seconds,
        window_samples=settings.window_samples // SCRAPES_AN_INTERVAL,
        shift_samples=settings.shift_samples // SCRAPES_AN_INTERVAL,
    )
    times = np.concatenate([_times(grid) for grid in grids])
    interval = settings.interval_seconds
    span = aligned(times.min() - settings.shift_seconds, times.max() + settings.shift_seconds, interval)
    with (
        tempfile.TemporaryDirectory(prefix="laggard-bench-") as folder,
        serving(_Exported(grids), Path(folder)) as url,
    ):
        read = _grids(PrometheusServer(url), load_map("node_exporter"), span, settings.shift_samples)
    return [_as_before(grid) for grid in read], settings


def _as_before(grid: Grid) -> Grid:
    """The group under its own name, and the drives under theirs."""
    group = grid.components[0].partition("/")[0]
    return replace(grid, group=group, components=tuple(name.rpartition("/")[2] for name in grid.components))
