"""Collectors, detectors and channels of other packages: examples, installed by pip, and broken ones."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from laggard_common.extensions import extensions
from tests.support.processes import run_command
from tests.support.wait import LIMIT_SECONDS

PROJECT = Path(__file__).parents[2]
EXAMPLES = sorted(path.parent for path in (PROJECT / "examples").glob("*/pyproject.toml"))
NO_INDEX = ("Could not find a version", "No matching distribution", "Connection", "Temporary failure")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three packages, installed by pip into a folder that only these tests import from."""
    folder = tmp_path_factory.mktemp("installed")
    options = ("--quiet", "--no-deps", "--disable-pip-version-check", "--target", folder)
    command = [sys.executable, "-m", "pip", "install", *options, *EXAMPLES]
    done = run_command(command, check=False, seconds=6 * LIMIT_SECONDS)
    if done.returncode and any(text in done.stderr for text in NO_INDEX):
        pytest.skip("hatchling, which builds the packages, cannot be fetched")
    assert done.returncode == 0, done.stderr
    return folder


def ran(folder: Path, module: str, *arguments: object, cwd: Path) -> CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return run_command([sys.executable, "-m", module, *arguments], check=False, env=environment, cwd=cwd)


def test_the_example_collector(installed: Path, tmp_path: Path) -> None:
    pressure = tmp_path / "proc/pressure"
    pressure.mkdir(parents=True)
    (pressure / "io").write_text(
        "some avg10=0.00 avg60=0.10 avg300=0.02 total=4711\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=42\n"
    )
    once = ("--once", "--collectors", "pressure", "--procfs", tmp_path / "proc")
    done = ran(installed, "laggard_agent", *once, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    record = json.loads(done.stdout)
    assert record["collector"] == "pressure"
    assert record["counters"] == {"io_some_us": 4711, "io_full_us": 42}
    (pressure / "io").write_text("torn")
    done = ran(installed, "laggard_agent", *once, cwd=tmp_path)
    assert done.returncode == 1
    assert "not as expected" in done.stderr


def test_the_example_detector(installed: Path, tmp_path: Path) -> None:
    series = tmp_path / "series.csv"
    values = [
        f"{t},d{d},{(1 + (t * 7 + d * 3) % 5 / 10) * (8 if d == 3 else 1)}"
        for t in range(0, 5400, 15)
        for d in range(8)
    ]
    series.write_text("\n".join(["ts,disk_id,latency", *values]) + "\n")
    done = ran(
        installed,
        "laggard_aggregator.cli.main",
        *("diagnose", series, "--detector", "fence", "--json"),
        cwd=tmp_path,
    )
    assert done.returncode in (0, 1), done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    components = {each["component"]: each["straggler"] for each in records if each["record"] == "component"}
    assert len(components) == 8
    assert [name for name, is_straggler in components.items() if is_straggler] == ["d3"]


def test_the_example_channel(installed: Path, tmp_path: Path) -> None:
    config = tmp_path / "aggregator.toml"
    config.write_text(f'site = "s"\n[mqtt]\nhost = "127.0.0.1"\n[file]\npath = "{tmp_path}/sent.jsonl"\n')
    done = ran(installed, "laggard_aggregator.cli.daemon", "--config", config, "--test-file", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (sent,) = (tmp_path / "sent.jsonl").read_text().splitlines()
    assert json.loads(sent)["subject"]
    config.write_text('site = "s"\n[file]\npath = "/nowhere/at/all"\n')
    done = ran(installed, "laggard_aggregator.cli.daemon", "--config", config, "--check-config", cwd=tmp_path)
    assert done.returncode == 2
    assert "file.path: /nowhere/at: not a directory" in done.stderr


def _entry_points(folder: Path, text: str) -> Path:
    place = folder / "broken-1.0.dist-info"
    place.mkdir(parents=True)
    (place / "entry_points.txt").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("module", "arguments", "kind"),
    [
        ("laggard_agent", ("--once", "--collectors", "broken"), "collectors"),
        ("laggard_aggregator.cli.main", ("diagnose", "x", "--detector", "broken"), "detectors"),
        ("laggard_aggregator.cli.daemon", ("--config", "x"), "channels"),
    ],
)
def test_a_package_that_cannot_be_imported_is_one_line(
    module: str, arguments: Sequence[str], kind: str, tmp_path: Path
) -> None:
    folder = _entry_points(tmp_path / "site", f"[laggard.{kind}]\nbroken = laggard_broken\n")
    (folder / "laggard_broken").mkdir()
    (folder / "laggard_broken/__init__.py").write_text("1 / 0\n")
    done = ran(folder, module, *arguments, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "the extension laggard_broken" in line
    assert line.endswith("cannot be used: ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[laggard.collectors]\na = b.c\n", {"a": "b.c"}),
        ("[console_scripts]\nx = y\n[laggard.collectors]\na = b\n[other]\nz = w\n", {"a": "b"}),
        ("[laggard.collectors]\n../a = b\na = b c\n = b\na\n", {}),
        ("[laggard.collectors]\n# a = b\n", {}),
        ("\x00\xff" * 50_000, {}),
        ("", {}),
    ],
)
def test_reading_entry_points(
    text: str, expected: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(_entry_points(tmp_path / "a[1]", text)), "/nowhere"])
    extensions.cache_clear()
    try:
        assert extensions("laggard.collectors") == expected
    finally:
        extensions.cache_clear()


def test_laggards_own_parts_cannot_be_replaced(installed: Path, tmp_path: Path) -> None:
    del installed
    folder = _entry_points(tmp_path / "site", "[laggard.collectors]\nhost = laggard_broken\n")
    done = ran(folder, "laggard_agent", "--once", "--collectors", "host", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["collector"]) == (0, "host")
