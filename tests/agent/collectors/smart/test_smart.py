"""The collector `smart` over a report of smartctl, whole, cut off, old, and with content of none."""

import os
import re
import shutil
from pathlib import Path

import pytest

from laggard_agent.collectors.smart.collector import FIELDS, MOST_REPORT_SECONDS, Smart, SmartSettings
from laggard_agent.collectors.smart.report import parse_report
from tests.support.sampled import Sampled, surroundings

REPORT = Path(__file__).resolve().parents[3] / "fixtures" / "smart" / "report.json"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return Path(shutil.copy(REPORT, tmp_path))


def sampled(report: Path, most: int = 512) -> Sampled[Smart]:
    agent = Sampled(lambda now, ns: Smart(SmartSettings(report, most), surroundings(now, ns)))
    if report.exists():
        os.utime(report, ns=(agent.clock.wall_ns(), agent.clock.wall_ns()))
    return agent.sample(0)


def test_every_disk_by_hand(report: Path) -> None:
    agent = sampled(report)
    assert agent.error == ""
    told = {
        name: {key: value for key, value in agent.row("disk_health", name).items() if value is not None}
        for name in agent.ids("disk_health")
    }
    assert told == {
        "nvme1": {"media_errors": 3, "log_entries": 20, "critical_warning": 0, "failing": 0},
        "bus/0 megaraid,1": {"grown_defects": 17, "uncorrected": 5, "failing": 0},
        "sda": {"reallocated": 8, "pending": 2, "link_errors": 31, "failing": 1},
        "sdb": {},
    }


def test_a_disk_is_its_serial_number_whatever_its_name(report: Path) -> None:
    def documents(*serials: str) -> str:
        line = REPORT.read_text().splitlines()[2]
        return "".join(
            line.replace("/dev/sda", f"/dev/sd{letter}").replace("{", f'{{"serial_number":"{serial}",', 1)
            + "\n"
            for letter, serial in zip("abcd", serials, strict=False)
        )

    report.write_text(documents("S1", "S2", "S3", "S3"))
    agent = sampled(report)
    assert agent.ids("disk_health") == ["S1", "S2", "S3@sdc", "S3@sdd"]
    report.write_text(documents("S2", "S1", "0000"))
    os.utime(report, ns=(agent.clock.wall_ns(), agent.clock.wall_ns()))
    agent.sample()
    assert agent.ids("disk_health") == ["S2", "S1", "sdc"]


IN_TEXT = {
    "media_errors": r'"media_errors":(\d+)',
    "log_entries": r'"num_err_log_entries":(\d+)',
    "grown_defects": r'"scsi_grown_defect_list":(\d+)',
    "uncorrected": r'"(?:read|write)":{[^}]*"total_uncorrected_errors":(\d+)',
    "reallocated": r'"id":5,[^}]*"raw":{"value":(\d+)',
    "link_errors": r'"id":199,[^}]*"raw":{"value":(\d+)',
    "critical_warning": r'"critical_warning":(\d+)',
    "pending": r'"id":197,[^}]*"raw":{"value":(\d+)',
}


def test_every_number_is_that_of_its_text(report: Path) -> None:
    agent = sampled(report)
    lines = REPORT.read_text().splitlines()
    for name, line in zip(agent.ids("disk_health"), lines, strict=True):
        assert f'"/dev/{name.partition(" ")[0]}"' in line
        row: dict[str, int | None] = {}
        for field, pattern in IN_TEXT.items():
            numbers = re.findall(pattern, line)
            row[field] = sum(map(int, numbers)) if numbers else None
        passed = re.findall(r'"passed":(true|false)', line)
        row["failing"] = int(passed[0] == "false") if passed else None
        assert agent.row("disk_health", name) == row


def test_no_report_an_old_one_and_limits(report: Path, tmp_path: Path) -> None:
    own = sampled(tmp_path / "nothing").row("smart", "smart")
    assert (own["disks"], own["report_age"]) == (0, None)
    agent = sampled(report, most=1)
    assert agent.ids("disk_health") == ["nvme1"]
    assert agent.row("smart", "smart")["left_out"] == 3
    agent.sample(MOST_REPORT_SECONDS + 1)
    assert list(agent.readings) == ["smart"]


def test_odd_lines_are_counted_and_odd_values_missing(report: Path) -> None:
    with report.open("a") as more:
        more.write('smartctl 7.4\n[]\n{"device":{"name":7}}\n\n' + "[" * 5000 + "\n")
        more.write('{"device":{"name":"/dev/sdc","type":[]},"scsi_grown_defect_list":1e400,')
        more.write('"smart_status":{"passed":1},"ata_smart_attributes":{"table":[5,{"id":5,"raw":-1}]}}\n')
    agent = sampled(report)
    assert agent.row("smart", "smart")["values_not_understood"] == 4
    assert agent.row("disk_health", "sdc") == {field.name: None for field in FIELDS}


def test_cut_off_anywhere() -> None:
    data = REPORT.read_bytes()
    for end in range(len(data)):
        part, whole = parse_report(data[:end]), parse_report(data[: data.rfind(b"\n", 0, end) + 1])
        assert (part.odd, part.disks) == (0, whole.disks)
