"""The series of a Prometheus server: as it has them, and labelled drives as counters in its blocks."""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench.leaderboard.labels import UNITS
from bench.leaderboard.series import METRIC
from laggard_aggregator.cli.user_times import epoch_seconds
from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.offline.prometheus_input import (
    Span,
    aligned,
    fitting_map,
    least_interval,
    read_prometheus,
)
from laggard_aggregator.offline.sample_grid import NS, Grid
from laggard_aggregator.prometheus.compare_map import Compare, CompareMap, load_map
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
class ScrapedSource:
    """Drives as the series of a table of a shipped map. `labels`: of a drive, by group, name and number.

    The table's first counters of time, operations and bytes have the drive's, its others stay 0. A table
    whose peers are all that are scraped is asked once for each group.
    """

    name: str
    map_name: str
    table_name: str
    labels: Callable[[str, str, int], Mapping[str, str]]

    @property
    def table(self) -> Compare:
        """The table."""
        return next(one for one in load_map(self.map_name).compare if one.name == self.table_name)

    def tables(self, groups: Sequence[str]) -> list[Compare]:
        """The table, or one for each group that it does not tell apart."""
        table = self.table
        if table.group_by:
            return [table]
        return [
            replace(table, select=f'{table.select},{table.component[0]}=~"{group}-MDT.*"') for group in groups
        ]


def _disk(group: str, drive: str, _number: int) -> Mapping[str, str]:
    return {"job": group, "instance": group, "device": drive}


def _osd(group: str, _drive: str, number: int) -> Mapping[str, str]:
    return {"fsid": group, "ceph_daemon": f"osd.{number}"}


def _mdt(group: str, _drive: str, number: int) -> Mapping[str, str]:
    return {"component": "mdt", "operation": "open", "target": f"{group}-MDT{number:04x}"}


SOURCES = (
    ScrapedSource("node_exporter", "node_exporter", "disks", _disk),
    ScrapedSource("ceph, reads", "ceph", "osd reads", _osd),
    ScrapedSource("ceph, commits", "ceph", "osd commits", _osd),
    ScrapedSource("lustrefs_exporter", "lustrefs_exporter", "mdt open", _mdt),
)
"""Maps with a latency; smartctl_exporter has errors alone."""


@dataclass(frozen=True)
class _Exported:
    """Drives as counters of `source`, a scrape a sample."""

    source: ScrapedSource
    grids: Sequence[Grid]

    @property
    def known(self) -> str:
        """A counter that every drive has."""
        return self.source.table.seconds[0]

    @property
    def end(self) -> float:
        """Time of the last sample, by which every series of it is known."""
        return (
            max(float(_times(grid)[np.isfinite(grid.metrics[METRIC]).any(axis=0)][-1]) for grid in self.grids)
            + 60
        )

    @property
    def components(self) -> Mapping[tuple[str, str], tuple[str, str]]:
        """Group and drive, by group and the name of the component that stands for it."""
        return {
            (grid.group, "/".join(labels[name] for name in self.source.table.component)): (grid.group, drive)
            for grid in self.grids
            for drive, labels in self._labelled(grid)
        }

    def _labelled(self, grid: Grid) -> Iterator[tuple[str, Mapping[str, str]]]:
        for number, drive in enumerate(grid.components):
            yield drive, self.source.labels(grid.group, drive, number)

    def lines(self) -> Iterator[str]:
        """OpenMetrics text with times."""
        table = self.source.table
        moved = (*table.read_bytes, *table.written_bytes)[:1]
        for name in dict.fromkeys((*table.seconds, *table.operations, *moved)):
            yield f"# TYPE {name} unknown\n"
            for grid in self.grids:
                latency, seconds = grid.metrics[METRIC], grid.interval_ns / NS
                requests = np.where(latency > 0, REQUESTS, 0.0)
                rises = np.zeros(latency.shape)
                if name == table.seconds[0]:
                    rises = requests * latency / UNITS["s"] / table.scale
                elif name == table.operations[0]:
                    rises = requests
                elif name in moved:
                    rises = grid.load[LOAD] * seconds
                for row, (_, labels) in enumerate(self._labelled(grid)):
                    known = np.isfinite(latency[row])
                    values = np.nan_to_num(rises[row][known]).cumsum()
                    text = ",".join(f'{label}="{value}"' for label, value in labels.items())
                    for at, value in zip(_times(grid)[known].tolist(), values.tolist(), strict=True):
                        yield f"{name}{{{text}}} {value!r} {at:.3f}\n"
        yield "# EOF\n"


def _times(grid: Grid) -> FloatArray:
    size = grid.block_samples
    number = (grid.blocks[:, None] * size + np.arange(1, size + 1)).ravel()
    times: FloatArray = number.astype(np.float64) * (grid.interval_ns / NS)
    return times


def scraped_settings(settings: DetectSettings) -> DetectSettings:
    """Settings for windows of the same length over intervals of SCRAPES_AN_INTERVAL samples."""
    return replace(
        settings,
        interval_seconds=SCRAPES_AN_INTERVAL * settings.interval_seconds,
        window_samples=settings.window_samples // SCRAPES_AN_INTERVAL,
        shift_samples=settings.shift_samples // SCRAPES_AN_INTERVAL,
    )


def through_prometheus(
    source: ScrapedSource, grids: Sequence[Grid], settings: DetectSettings
) -> Iterator[Grid]:
    """The groups as a real server gives them back; `settings` are those of `scraped_settings`."""
    times = np.concatenate([_times(grid) for grid in grids])
    interval, lead = settings.interval_seconds, settings.shift_seconds
    span = aligned(times.min() - lead, times.max() + lead, interval)
    exported = _Exported(source, grids)
    groups = [grid.group for grid in grids]
    drives = exported.components
    with (
        tempfile.TemporaryDirectory(prefix="laggard-bench-") as folder,
        serving(exported, Path(folder), "486h", 3600.0) as url,
    ):
        for table in source.tables(groups):
            read = _grids(PrometheusServer(url), CompareMap((table,)), span, settings.shift_samples)
            for grid in read:
                group = _group_of(grid, groups)
                named = tuple(drives[group, name][1] for name in grid.components)
                yield replace(grid, group=group, components=named)


def _group_of(grid: Grid, groups: Sequence[str]) -> str:
    """The group whose name stands in that of the group that was read, or in its components'."""
    named = {grid.group.rpartition(", ")[2], grid.components[0].rpartition("-MDT")[0]}
    return next(group for group in groups if group in named)
