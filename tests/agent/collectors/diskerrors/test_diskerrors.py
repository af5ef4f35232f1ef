"""The collector `diskerrors` over trees in the layout of sysfs, and over files that no kernel writes."""

from pathlib import Path

import pytest

from laggard_agent.collectors.diskerrors.collector import FIELDS, DiskErrors, DiskErrorsSettings, parse_count
from tests.support.builders.trees import tree
from tests.support.sampled import Sampled, surroundings

PCI = "devices/pci0000:00/0000:00:02.0"
LINK = (
    *("invalid_dword_count", "loss_of_dword_sync_count", "running_disparity_error_count"),
    "phy_reset_problem_count",
)


def scsi(sysfs: Path, name: str, path: str, **counts: str) -> Path:
    """A disk with counters below `path`, its `device` and the link of /sys/block."""
    device = f"{path}/target0:0:0/{name}"
    made = {"ioerr_cnt": "0x0", "iorequest_cnt": "0x1f4", "iodone_cnt": "0x1f4", "state": "running", **counts}
    tree(sysfs / device, {file: f"{text}\n" for file, text in made.items()})
    (sysfs / "block" / name).mkdir(parents=True)
    (sysfs / "block" / name / "device").symlink_to(sysfs / device)
    return sysfs / device


def phy(sysfs: Path, port: str, name: str, *counts: int) -> None:
    """A phy of a port, which has a link to it as the kernel makes one."""
    folder = f"{PCI}/host0/{name}/sas_phy/{name}"
    tree(sysfs / folder, dict(zip(LINK, (f"{count}\n" for count in counts), strict=True)))
    (sysfs / port).mkdir(parents=True, exist_ok=True)
    (sysfs / port / name).symlink_to(sysfs / PCI / "host0" / name)


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """A SAS disk behind an expander, a SATA disk without links, an NVMe disk, and one without a driver."""
    outer, inner = f"{PCI}/host0/port-0:0", f"{PCI}/host0/port-0:0/expander-0:0/port-0:0:5"
    phy(tmp_path, outer, "phy-0:0", 9000, 9000, 9000, 9000)
    phy(tmp_path, inner, "phy-0:0:5", 7, 2, 6, 1)
    phy(tmp_path, inner, "phy-0:0:6", 10, 0, 0, 0)
    scsi(tmp_path, "sda", f"{inner}/end_device-0:0:5", ioerr_cnt="0xc", iotmo_cnt="0x3")
    scsi(tmp_path, "sdb", f"{PCI}/ata1/host1", state="offline")
    tree(tmp_path, {"block/nvme0n1/device/state": "live\n", "block/nvme1n1/device/state": "dead\n"})
    tree(tmp_path, {"block/loop0/size": "8\n"})
    return tmp_path


def sampled(sysfs: Path, **settings: float) -> Sampled[DiskErrors]:
    chosen = DiskErrorsSettings(**settings)  # type: ignore[arg-type]
    return Sampled(lambda now, ns: DiskErrors(chosen, surroundings(now, ns, sysfs=sysfs)))


def test_disks_with_their_links(sysfs: Path) -> None:
    agent = sampled(sysfs).sample()
    assert agent.error == ""
    assert agent.ids("disk_errors") == ["nvme0n1", "nvme1n1", "sda", "sdb"]
    assert agent.row("disk_errors", "sda") == {
        "errors": 12,
        "timeouts": 3,
        "invalid_dwords": 17,  # of both phys of the port it is on
        "sync_losses": 2,
        "disparity_errors": 6,
        "phy_resets": 1,
        "down": 0,
    }
    unknown: dict[str, int | None] = {field.name: None for field in FIELDS}
    assert agent.row("disk_errors", "sdb") == unknown | {"errors": 0, "down": 1}
    assert agent.row("disk_errors", "nvme0n1") == unknown | {"down": 0}
    assert agent.row("disk_errors", "nvme1n1") == unknown | {"down": 1}
    assert list(agent.row("diskerrors", "diskerrors").values()) == [4, 0, 0, 0]


def test_a_disk_is_its_identifier_whatever_its_name(sysfs: Path) -> None:
    for name, wwid in (("sda", "naa.5000c500a1b2c3d4"), ("sdb", "naa.5000c500a1b2c3d5")):
        (sysfs / f"block/{name}/device/wwid").write_text(f"{wwid}\n")
    agent = sampled(sysfs).sample()
    assert agent.ids("disk_errors") == ["nvme0n1", "nvme1n1", "naa.5000c500a1b2c3d4", "naa.5000c500a1b2c3d5"]
    assert agent.row("disk_errors", "naa.5000c500a1b2c3d4")["errors"] == 12
    for name, other in (("sda", "x"), ("sdb", "sda"), ("x", "sdb")):
        (sysfs / "block" / name).rename(sysfs / "block" / other)
    agent.sample(60)
    assert agent.row("disk_errors", "naa.5000c500a1b2c3d4")["errors"] == 12


def test_they_are_read_once_a_minute(sysfs: Path) -> None:
    agent = sampled(sysfs, max_disks=3).sample()
    assert agent.row("diskerrors", "diskerrors")["disks_left_out"] == 1
    (sysfs / "block/sda/device/ioerr_cnt").write_text("0xff\n")
    assert agent.sample(59).row("disk_errors", "sda")["errors"] == 12
    assert agent.sample(1).row("disk_errors", "sda")["errors"] == 255


@pytest.mark.parametrize("text", ["", "twelve", "-1", "0x", "0x1ffffffffffffffff", "9" * 21, "1 2"])
def test_no_numbers_are_counted_and_unknown(sysfs: Path, text: str) -> None:
    assert parse_count(text.encode()) is None
    (sysfs / "block/sda/device/ioerr_cnt").write_text(text)
    agent = sampled(sysfs).sample()
    assert agent.row("disk_errors", "sda")["errors"] is None
    assert agent.row("diskerrors", "diskerrors")["values_not_understood"] == 1


def test_nothing_to_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "block").mkdir()
    (tmp_path / "block" / "sd\x1b[31m").mkdir()
    agent = sampled(tmp_path).sample().sample()
    assert (agent.error, list(agent.readings)) == ("", ["diskerrors"])
    assert caplog.text.count("no disk with counters of errors") == 1


def test_an_unreadable_file_costs_no_other(sysfs: Path) -> None:
    loop = sysfs / "block/sda/device/ioerr_cnt"
    loop.unlink()
    loop.symlink_to(loop.name)
    agent = sampled(sysfs).sample()
    assert "ioerr_cnt" in agent.error
    assert agent.row("disk_errors", "sda")["timeouts"] == 3
    assert agent.row("diskerrors", "diskerrors")["files_failed"] == 1
