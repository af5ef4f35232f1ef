"""The registry of detectors: a folder is all that a new one needs."""

import sys
from pathlib import Path

import pytest

from laggard_aggregator.detect import registry
from laggard_aggregator.detect.settings import DetectSettings, training_options
from tests.support.builders import csv_files
from tests.support.processes import run_command

DOCS = Path(__file__).parents[3] / "docs"
PAGES = ("detection.md", "papers-detectors.md", "function-profiles.md")
OPTIONS = """
from laggard_aggregator.detect.settings import TrainingOption

TRAINING_OPTIONS = (TrainingOption("margin", "steep: factor of the thresholds", 2, most=9),)
"""
STEEP = '''"""Anomalous where the mean exceeds a trained multiple of the peers' median."""

from typing import Any

import numpy as np

from laggard_aggregator.detect.interface import GroupWindow, Verdicts
from laggard_aggregator.detect.registry import Detector, Trained, Training, register
from laggard_aggregator.detect.steep import TRAINING_OPTIONS


def learn(windows: Any, options: Any) -> Trained:
    thresholds: Any = {}
    for window in windows():
        assert isinstance(window, GroupWindow)
        for metric, values in window.metrics.items():
            means = np.nanmean(values[:, window.history :], axis=1)
            known = thresholds.setdefault(window.group, {}).setdefault(metric, {})
            for name, mean in zip(window.components, means / np.median(means), strict=True):
                known[name] = max(known.get(name, 0.0), options["margin"] * float(mean))
    return Trained(thresholds)


@register
class SteepDetector(Detector[GroupWindow]):
    name = "steep"
    version = 1
    needs_thresholds = True
    training = Training(learn, TRAINING_OPTIONS)

    def observe(self, window: GroupWindow) -> Verdicts:
        assert self._settings.options == {"margin": 3}
        means = np.nanmean(window.metrics[self._metric][:, window.history :], axis=1)
        middle = np.median(means)
        least = np.array([self._thresholds[name] for name in window.components])
        ratio = means / middle
        everyone = np.ones(len(means), dtype=np.bool_)
        return Verdicts(everyone, ratio > least, ratio / least, ratio, means, np.full(len(means), middle))
'''
RUN = """
import sys
from laggard_aggregator import detect
detect.__path__.append(sys.argv[1])
from laggard_aggregator.cli.main import main
sys.exit(main(sys.argv[2:]))
"""
CHECK = """
import sys
from laggard_aggregator import detect
detect.__path__.append(sys.argv[1])
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_common.config import parse
from laggard_common.errors import ConfigError
try:
    parse(AggregatorSettings, {"detect": {"detector": "steep"}})
except ConfigError as exc:
    print(exc.problems)
parse(AggregatorSettings, {"detect": {"detector": "steep", "thresholds": "t.toml"}})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that is not in the tree, with a detector in it."""
    steep = tmp_path / "detectors" / "steep"
    steep.mkdir(parents=True)
    (steep / "__init__.py").write_text(OPTIONS)
    (steep / "detector.py").write_text(STEEP)
    return steep.parent


def test_a_new_detector_is_one_folder(folder: Path, tmp_path: Path) -> None:
    healthy = csv_files.write(tmp_path / "healthy.csv", csv_files.rows(seed=3, slow=None, hours=3))
    faulty = csv_files.write(tmp_path / "faulty.csv", csv_files.rows(seed=4, factor=9.0, hours=3))
    thresholds = tmp_path / "t.toml"
    columns = ("--group-by", "file", "--window", "20", "--shift", "10")
    laggard = [sys.executable, "-c", RUN, folder]
    train = [*laggard, "train", *columns, "--detector", "steep", "-o", thresholds]
    assert "[--margin N]" in run_command([*train, "--help"]).stdout
    run_command([*train, "--margin", "3", healthy])
    assert "margin = 3\n" in thresholds.read_text()
    wrong = run_command(
        [*laggard, "train", *columns, "--margin", "3", healthy, "-o", thresholds], check=False
    )
    assert "--margin goes with --detector steep" in wrong.stderr
    judge = [*laggard, "diagnose", *columns, "--detector", "steep"]
    assert "steep needs --thresholds FILE" in run_command([*judge, faulty], check=False).stderr
    found = run_command([*judge, "--thresholds", thresholds, "--json", "--windows", faulty]).stdout
    assert '"anomalous": true' in found
    checked = run_command([sys.executable, "-c", CHECK, folder]).stdout
    assert checked == "('detect.thresholds: steep needs a file from laggard train',)\n"


@pytest.mark.parametrize("name", registry.names())
def test_every_folder_declares_a_detector(name: str) -> None:
    found = registry.find(name)
    assert (found.name, found.compares in ("metrics", "functions")) == (name, True)
    assert found.training is not None or not found.needs_thresholds
    detector = registry.make_detector(DetectSettings(detector=name), "samples")
    assert detector.state()["version"] == found.version == detector.version


@pytest.mark.parametrize("name", registry.names())
def test_every_detector_and_its_options_are_documented(name: str) -> None:
    training = registry.find(name).training
    options = training.options if training is not None else ()
    text = "".join((DOCS / file).read_text() for file in PAGES)
    assert [word for word in (name, *(option.flag for option in options)) if word not in text] == []


def test_names() -> None:
    assert registry.names() == ("laggard", "cdf", "manhattan")
    assert registry.names("functions") == ("manhattan",)
    assert registry.trainable() == tuple(training_options()) == ("cdf", "manhattan")
    assert [registry.training_of(n).options for n in registry.trainable()] == list(
        training_options().values()
    )
    with pytest.raises(KeyError):
        registry.find("nobody")


def test_recorded_settings_come_back() -> None:
    options = {"bin_limit": 10, "bin_limit_mode": "clip"}
    trained = DetectSettings(detector="cdf", thresholds={"await": {"a": 1.0}}, options=options)
    functions = {"functions": {"samples": {"f": 1.0}}}
    for settings in (DetectSettings(), trained, DetectSettings(detector="manhattan", options=functions)):
        assert DetectSettings.of_record(settings.record()) == settings
    assert list(DetectSettings().record())[-4:] == ["bin_limit", "bin_limit_mode", "thresholds", "functions"]
