"""The present code against the goldens; README.md says how those change."""

import json
import shutil
from pathlib import Path

import pytest

from tests.golden import entry, goldens, jobs
from tests.golden.before import continued
from tests.golden.formats import close

SAME_MACHINE = json.loads((goldens.FOLDER / "machine.json").read_text()) == goldens.machine()
BREAKS_LINES_OTHERWISE = goldens.machine()["python"] not in ("3.11", "3.12")


def agrees(now: str, path: Path) -> None:
    """Fails unless `now` is the text in `path`; on another machine the last digits of numbers may differ."""
    golden = path.read_text()
    if not SAME_MACHINE and close(now, golden):
        return
    assert now == golden, f"{path.name} changed: see tests/golden/README.md"


@pytest.mark.parametrize("name", sorted(goldens.all_of_them().keys() - {"machine.json"}))
def test_nothing_differs_from_its_golden(name: str) -> None:
    if name == "diagnose/recording.jsonl" and shutil.which("sadf") is None:
        pytest.skip("sadf (package sysstat) is not installed")
    if name.startswith(("help/", "config_errors")) and BREAKS_LINES_OTHERWISE:
        pytest.skip("argparse of this Python breaks lines otherwise")
    if name in jobs.NEEDS_MINING and not entry.HAS_DARSHAN:
        pytest.skip("the extra mining is not installed")
    agrees(goldens.all_of_them()[name](), goldens.FOLDER / name)


def test_every_golden_is_made_by_something() -> None:
    there = {str(path.relative_to(goldens.FOLDER)) for path in goldens.FOLDER.rglob("*") if path.is_file()}
    assert there == goldens.all_of_them().keys()


@pytest.mark.parametrize("name", sorted(continued.goldens()))
def test_it_goes_on_from_what_an_earlier_version_left(name: str) -> None:
    agrees(continued.goldens()[name](), continued.PACKED.with_name(name))
