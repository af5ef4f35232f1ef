from pathlib import Path

import numpy as np
import pytest

from laggard_aggregator.demo.recording import read_recording
from laggard_aggregator.demo.site import OWN, make_site
from laggard_aggregator.demo.training import healthy_grid, train
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_aggregator.settings.from_settings import membership
from laggard_common.config import load
from tests.support.builders import recordings

NAMES = {lun: f"node/{lun}" for lun in recordings.LUNS}


def test_the_healthy_part_and_nothing_of_the_fault(tmp_path: Path) -> None:
    recording = read_recording(recordings.write(tmp_path / "r.xz", recordings.text()))
    grid = healthy_grid(recording, NAMES, "luns-cdf", 100_000_000, 8)
    assert grid.components == tuple(NAMES.values())
    values = grid.metrics["await"]
    assert values.shape == (6, 24)
    assert values[:, :20] == pytest.approx(2.0)  # ms a request, as the recording was made
    assert np.isnan(values[:, 20:]).all()
    windows = [grid.window(int(end), 16, 0) for end in grid.window_ends(16)]
    assert [None if w is None else (w.start, w.end) for w in windows] == [
        pytest.approx((-0.8, 0.8)),
        pytest.approx((0.0, 1.6)),
        pytest.approx((0.8, 2.4)),
        pytest.approx((1.6, 3.2)),
    ]


def test_the_packaged_recording() -> None:
    """What comes with Laggard: a clear fault on one of twelve LUNs, and three healthy minutes before it."""
    recording = read_recording()
    assert len(recording.luns) == 12
    assert 500 < recording.seconds < 900
    grid = healthy_grid(recording, {lun: lun for lun in recording.luns}, "g", 10**9, 30)
    healthy = grid.metrics["await"]
    assert 150 <= np.isfinite(healthy[0]).sum() <= 200
    medians = np.nanmedian(healthy, axis=1)
    assert medians.max() < 1.3 * medians.min()


def test_the_aggregator_takes_its_configuration_and_the_thresholds(tmp_path: Path) -> None:
    recording = read_recording()
    site = make_site(tmp_path, recording.luns, 0.1)
    site.write()
    train(recording, site)
    settings = load(AggregatorSettings, site.aggregator_toml)
    assert not settings.unused
    groups = {rule.group.name: rule.group.detect for rule in membership(settings).rules}
    assert {name: detect.detector for name, detect in groups.items()} == {
        "luns": "laggard",
        "luns-cdf": "cdf",
        OWN: "laggard",
    }
    trained = groups["luns-cdf"].thresholds["await"]
    assert set(trained) == {site.component(lun) for lun in recording.luns}
    assert all(0 < threshold < 10 for threshold in trained.values())
