"""The collector `mmpmon` over a report, whole, cut off, old, and with content that no program prints."""

import os
import re
import shutil
from pathlib import Path

import pytest

from laggard_agent.collectors.mmpmon.collector import Mmpmon, MmpmonSettings
from laggard_agent.collectors.mmpmon.report import KEYS, parse_report
from laggard_agent.collectors.report_file import MOST_SECONDS
from tests.support.sampled import Sampled, surroundings

REPORT = Path(__file__).resolve().parents[3] / "fixtures" / "mmpmon" / "report.txt"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return Path(shutil.copy(REPORT, tmp_path))


def sampled(report: Path) -> Sampled[Mmpmon]:
    agent = Sampled(lambda now, ns: Mmpmon(MmpmonSettings(report), surroundings(now, ns)))
    if report.exists():
        os.utime(report, ns=(agent.clock.wall_ns(), agent.clock.wall_ns()))
    return agent.sample(0)


def test_every_number_is_that_of_its_text(report: Path) -> None:
    agent = sampled(report)
    assert (agent.error, agent.ids("gpfs_fs")) == ("", ["scratch", "project"])
    for line in REPORT.read_text().splitlines()[1:3]:
        name = re.findall(r"_fs_ (\S+)", line)[0]
        row = agent.row("gpfs_fs", name)
        assert row == {field: int(re.findall(rf" {key} (\d+)", line)[0]) for key, field in KEYS.items()}


def test_waiters_without_those_that_always_wait(report: Path) -> None:
    own = sampled(report).row("mmpmon", "mmpmon")
    assert own == {
        "file_systems": 2,
        "waiters": 4,
        "io_waiters": 3,
        "long_waiters": 1,
        "long_io_waiters": 2,
        "longest_ms": 64300,
        "longest_io_ms": 64300,
        "report_age": 0,
        "files_failed": 0,
        "values_not_understood": 0,
    }


def test_every_wait_is_that_of_its_text(report: Path) -> None:
    """Times in seconds from the text's own columns, by place."""
    heading, *lines = (line for line in REPORT.read_text().splitlines() if line.startswith("mmdiag:"))
    thread, wait = (heading.split(":").index(name) for name in ("threadName", "waitTime"))
    waits = [
        (float(words[wait]), "for I/O completion" in line)
        for line in lines
        if not (words := line.split(":"))[thread].startswith(("Fsck", "EventsExporter"))
    ]
    own = sampled(report).row("mmpmon", "mmpmon")
    disks = [seconds for seconds, is_io in waits if is_io]
    assert (own["waiters"], own["io_waiters"]) == (len(waits), len(disks)) == (4, 3)
    assert own["longest_ms"] == int(1000 * max(seconds for seconds, _ in waits))
    assert own["longest_io_ms"] == int(1000 * max(disks))
    assert own["long_waiters"] == sum(seconds > 60 for seconds, _ in waits)
    assert own["long_io_waiters"] == sum(seconds > 1 for seconds in disks)


def test_no_report_an_old_one_and_one_without_mmdiag(report: Path, tmp_path: Path) -> None:
    own = sampled(tmp_path / "nothing").row("mmpmon", "mmpmon")
    assert (own["file_systems"], own["waiters"], own["report_age"]) == (0, None, None)
    report.write_text(REPORT.read_text().partition("mmdiag")[0])
    agent = sampled(report)
    assert agent.row("mmpmon", "mmpmon")["waiters"] is None
    agent.sample(MOST_SECONDS + 1)
    assert list(agent.readings) == ["mmpmon"]


def test_odd_lines_are_counted(report: Path) -> None:
    with report.open("a") as more:
        more.write("_fs_io_s_ _n_ 1 _rc_ 0 _fs_ home _br_ many\nmmdiag:waiters:0:1:::1:2:Thread::soon:\n")
        more.write("mmdiag:waiters:0:1:::1:2:Thread::1e999999:\nfoobar\nmmdiag:other:0:1\n")
    agent = sampled(report)
    assert agent.row("mmpmon", "mmpmon")["values_not_understood"] == 3
    assert agent.row("gpfs_fs", "home")["read_bytes"] is None


def test_cut_off_anywhere() -> None:
    data = REPORT.read_bytes()
    for end in range(len(data)):
        part = parse_report(data[:end])
        whole = parse_report(data[: data.rfind(b"\n", 0, end) + 1])
        assert (part.odd, part.file_systems, part.waiters) == (0, whole.file_systems, whole.waiters)
