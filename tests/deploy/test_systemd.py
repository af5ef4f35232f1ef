"""The units as systemd-analyze sees them, and the drop-ins that the documents promise."""

import re
import shutil
from pathlib import Path

import pytest

from laggard_agent.settings import AgentSettings
from laggard_aggregator.settings.aggregator import ArchiveTable, StateTable
from tests.support.container import PROJECT
from tests.support.processes import run_command

UNITS = ("laggard-agent.service", "laggard-aggregator.service")
SYSTEMD = PROJECT / "systemd"
DROP_INS = sorted((SYSTEMD / "laggard-agent.service.d").glob("*.conf"))
MOST_EXPOSURE = 2.0

needs_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (systemd)"
)


def installed(folder: Path, unit: str, *drop_ins: Path) -> Path:
    """The unit, with some drop-ins, on a machine where its program is there."""
    program = folder / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = folder / unit
    path.write_text(re.sub(r"/opt/laggard/bin/[a-z-]+", str(program), (SYSTEMD / unit).read_text()))
    for drop_in in drop_ins:
        target = folder / f"{unit}.d" / drop_in.name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(drop_in, target)
    return path


def analyzed(*command: str) -> str:
    done = run_command(["systemd-analyze", "--no-pager", *command])
    assert done.stderr == ""
    return done.stdout


def exposure(unit: Path) -> float:
    said = analyzed("security", "--offline=true", str(unit))
    found = re.search(r"Overall exposure level for .*: ([0-9.]+)", said)
    assert found is not None, said
    return float(found[1])


@needs_analyze
@pytest.mark.parametrize("unit", UNITS)
def test_units_are_valid_and_little_exposed(tmp_path: Path, unit: str) -> None:
    path = installed(tmp_path, unit)
    analyzed("verify", "--man=no", str(path))
    assert 0 < exposure(path) <= MOST_EXPOSURE


@needs_analyze
@pytest.mark.parametrize("drop_in", DROP_INS, ids=lambda path: path.stem)
def test_a_drop_in_is_valid_and_exposes_no_more_than_it_must(tmp_path: Path, drop_in: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    alone = exposure(installed(bare, UNITS[0]))
    path = installed(tmp_path, UNITS[0], drop_in)
    analyzed("verify", "--man=no", str(path))
    path.write_text(path.read_text() + drop_in.read_text())  # `security --offline` reads no drop-ins
    assert alone <= exposure(path) <= (2.5 if drop_in.stem == "fnprofile" else MOST_EXPOSURE)


def test_every_drop_in_is_in_the_table_and_the_other_way_round() -> None:
    table = (SYSTEMD / "README.md").read_text()
    assert set(re.findall(r"`([a-z-]+\.conf)`", table)) == {path.name for path in DROP_INS}


def test_the_folders_of_the_default_configuration_are_those_that_the_units_may_write() -> None:
    def folders(unit: str) -> set[Path]:
        (line,) = re.findall(r"^StateDirectory=(.*)$", (SYSTEMD / unit).read_text(), re.MULTILINE)
        return {Path("/var/lib") / folder for folder in line.split()}

    assert folders(UNITS[0]) == {AgentSettings().spool.directory}
    assert folders(UNITS[1]) == {ArchiveTable().directory, StateTable().directory}


def test_the_aggregator_can_tell_who_asks_at_its_control_socket() -> None:
    unit = (SYSTEMD / UNITS[1]).read_text()
    assert re.findall(r"^PrivateUsers=(.*)$", unit, re.MULTILINE) == ["no"], "else all but root are nobody"


def test_who_runs_the_units_is_made() -> None:
    users = {
        line.split()[1]
        for line in (SYSTEMD / "sysusers.d" / "laggard.conf").read_text().splitlines()
        if line.startswith("u ")
    }
    for unit in UNITS:
        assert set(re.findall(r"^User=(.*)$", (SYSTEMD / unit).read_text(), re.MULTILINE)) == users
