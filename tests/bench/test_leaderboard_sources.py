"""Drives that go through the series of each exporter come back with their groups, names and latencies."""

import shutil

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.leaderboard.by_source import drives_of
from bench.leaderboard.scraped import SOURCES, ScrapedSource, scraped_settings, through_prometheus
from bench.leaderboard.series import METRIC
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.offline.sample_grid import Grid

WINDOW = 4
BLOCKS = np.arange(30_000_000, 30_000_010)
BLOCKS_A_DAY = 1440
TWO_EVENINGS = np.concatenate([BLOCKS, BLOCKS + BLOCKS_A_DAY])
SETTINGS = DetectSettings(interval_seconds=15, window_samples=WINDOW, shift_samples=WINDOW)


def host(group: str, latencies: list[float], blocks: NDArray[np.int64] = BLOCKS) -> Grid:
    """Drives with one latency each, us."""
    latency = np.repeat(np.array(latencies)[:, None], WINDOW * blocks.size, axis=1)
    names = tuple(f"sd{letter}" for letter in "abcdefghijkl"[: len(latencies)])
    return Grid(group, names, 15 * 10**9, WINDOW, blocks, {METRIC: latency}, {"throughput": latency * 1e4})


@pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")), reason="needs prometheus and promtool"
)
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_drives_come_back(source: ScrapedSource) -> None:
    grids = [host("host_1", [40.0 + 3 * n for n in range(11)]), host("host_1-0", [70.0, 90.0])]
    read = {grid.group: grid for grid in through_prometheus(source, grids, scraped_settings(SETTINGS))}
    assert read.keys() == {"host_1", "host_1-0"}
    for grid in grids:
        back = read[grid.group]
        assert set(back.components) == set(grid.components)
        for drive, latency in zip(back.components, back.metrics[METRIC], strict=True):
            expected = grid.metrics[METRIC][grid.components.index(drive), 0]
            assert np.nanmin(latency) == pytest.approx(expected)
            assert np.nanmax(latency) == pytest.approx(expected)
            assert np.isfinite(latency).sum() >= latency.size - 2


def test_each_drive_is_made_slow_in_a_copy_of_its_group() -> None:
    grids = [host("host_1", [40.0] * 5, TWO_EVENINGS), host("host_2", [50.0] * 5, TWO_EVENINGS)]
    drives = drives_of(grids, {("host_1", "sda")}, trials=1, seed=1)
    assert len(drives.slowed) == len(drives.onsets) == 8
    assert len({grid.group for grid in drives.slowed}) == 8
    for grid, fault in zip(drives.slowed, drives.onsets, strict=True):
        row = grid.components.index(fault.component)
        after = grid.metrics[METRIC][:, -1]
        assert fault.group == grid.group
        assert after[row] > np.delete(after, row).max()
        assert (grid.group.startswith("host_1"), "sda" in grid.components) != (True, True)
