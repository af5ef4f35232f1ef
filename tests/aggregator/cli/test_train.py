"""`laggard train`, and the file that it writes."""

import re
import tomllib
from pathlib import Path

import pytest

from laggard_aggregator.cli.main import main
from laggard_aggregator.detect.trained_thresholds import Thresholds
from laggard_aggregator.settings import thresholds_file
from laggard_common.errors import ConfigError
from tests.aggregator.cli.test_diagnose import OPTIONS, diagnose, of
from tests.aggregator.offline.test_replay import run_online
from tests.support.builders import csv_files


def test_what_is_trained_on_healthy_hours_finds_the_fault_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "training"
    folder.mkdir()
    healthy = csv_files.write(folder / "host_1.csv", csv_files.rows(seed=3, slow=None, hours=6))
    faulty = csv_files.write(tmp_path / "host_1.csv", csv_files.rows(seed=4, factor=4.0))
    file, picture = tmp_path / "thresholds.toml", tmp_path / "awaits.png"
    assert main(["train", str(healthy), *OPTIONS, "-o", str(file), "--plot", str(picture)]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (f"8 thresholds written to {file}\n", "")
    assert picture.read_bytes().startswith(b"\x89PNG")
    table = tomllib.loads(file.read_text())
    assert (table["detector"], table["sources"], table["window_samples"]) == ("cdf", ["host_1.csv"], 20)
    assert set(table["thresholds"]["host_1"]["latency"]) == {f"disk{n}" for n in range(1, 9)}

    cdf = (*OPTIONS, "--detector", "cdf", "--thresholds", str(file))
    assert [r["component"] for r in of(diagnose([faulty], *cdf), "component") if r["straggler"]] == ["disk3"]
    assert not any(r["anomalous_windows"] for r in of(diagnose([healthy], *cdf), "component"))


def test_components_that_stand_out_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = csv_files.write(tmp_path / "host_1.csv", csv_files.rows())
    assert main(["train", str(data), *OPTIONS, "-o", str(tmp_path / "t.toml")]) == 0
    err = capsys.readouterr().err
    found = re.search(
        r"laggard train: host_1 disk3 stands out in latency, at times ([0-9.]+) x its peers", err
    )
    assert found is not None
    assert 1.9 < float(found[1]) < 2.1
    assert len(err.splitlines()) == 1


def test_an_archive_is_trained_with_its_own_windows(tmp_path: Path) -> None:
    run_online(tmp_path / "archive", seed=1, seconds=140)
    assert main(["train", str(tmp_path / "archive"), "-o", str(tmp_path / "t.toml")]) == 0
    trained = thresholds_file.load(tmp_path / "t.toml")
    assert (trained.interval_seconds, trained.window_samples) == (1.0, 60)
    assert set(trained.groups) == {"luns", "storage/diskstats"}
    assert set(trained.groups["luns"]) == {"await", "tps"}
    assert len(trained.groups["luns"]["await"]) == 12


def test_too_little_data_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = csv_files.write(tmp_path / "host_1.csv", csv_files.rows(hours=0.02))
    assert main(["train", str(data), *OPTIONS, "-o", str(tmp_path / "t.toml")]) == 2
    assert "no window has enough samples" in capsys.readouterr().err
    assert not (tmp_path / "t.toml").exists()


def test_a_file_that_cannot_be_written_is_told_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "no" / "t.toml"
    assert main(["train", str(tmp_path / "not even looked for.csv"), "-o", str(file)]) == 2
    assert capsys.readouterr().err == f"laggard train: {file}: cannot be written: no such directory\n"


def test_thresholds_of_other_windows_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = csv_files.write(tmp_path / "host_1.csv", csv_files.rows(slow=None))
    file = tmp_path / "t.toml"
    assert main(["train", str(data), *OPTIONS, "-o", str(file)]) == 0
    capsys.readouterr()
    assert main(["diagnose", str(data), "--detector", "cdf", "--thresholds", str(file)]) == 2
    assert capsys.readouterr().err == (
        "laggard diagnose: --thresholds: window_samples: trained with 20, to be used with 60\n"
    )


def test_names_of_any_kind_come_back_from_the_file(tmp_path: Path) -> None:
    names = ['"', "\\", "a b", "ü", "\N{GRINNING FACE}", "tab\t", "\x7f", "a.b", "]", "#"]
    saved = Thresholds(
        detector="cdf",
        version=1,
        trained="2026-01-31T00:00:00+00:00",
        sources=tuple(names),
        interval_seconds=0.1,
        window_samples=60,
        options={"bin_limit": 500, "bin_limit_mode": "clip"},
        groups={name: {name: {name: 0.1 + 0.2}} for name in names},
    )
    thresholds_file.save(tmp_path / "t.toml", saved)
    assert thresholds_file.load(tmp_path / "t.toml") == saved


def test_everything_that_is_wrong_with_a_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(
        "detector = 1\nversion = 1\nsources = []\ninterval_seconds = 15\nwindow_samples = 60\nhm = 1\n"
        '[thresholds.luns]\nawait = 3\n[thresholds.luns.tps]\na = -1\nb = "x"\nc = 1\n'
    )
    with pytest.raises(ConfigError) as caught:
        thresholds_file.load(path)
    assert caught.value.problems == (
        "hm: unknown key",
        "detector: expected a string, got 1",
        "trained: missing, expected a string",
        "bin_limit: missing, expected an integer",
        "bin_limit_mode: missing, expected a string",
        "thresholds.luns.await: expected a table",
        "thresholds.luns.tps.a: expected a number of 0 or more, got -1",
        "thresholds.luns.tps.b: expected a number of 0 or more, got 'x'",
    )
    groups = {"g": {"await": {"a": 1.0}}}
    options = {"bin_limit": 1000, "bin_limit_mode": "widen"}
    whole = Thresholds("cdf", 1, "2026-01-31T00:00:00+00:00", (), 15.0, 60, groups, options)
    thresholds_file.save(path, whole)
    for good, bad in (("limit = 1000", "limit = 0"), ('"widen"', '"cut"')):
        text = path.read_text()
        path.write_text(text.replace(good, bad))
        with pytest.raises(ConfigError, match="bin_limit"):
            thresholds_file.load(path)
        path.write_text(text)
    for content in (b"\xff", b"detector ="):
        path.write_bytes(content)
        with pytest.raises(ConfigError):
            thresholds_file.load(path)
    with pytest.raises(ConfigError, match="no such file"):
        thresholds_file.load(tmp_path / "missing")
