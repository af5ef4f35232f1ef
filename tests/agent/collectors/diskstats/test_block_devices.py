import shutil
from pathlib import Path

import pytest

from laggard_agent.collectors.diskstats.block_devices import BlockDevices
from laggard_agent.collectors.diskstats.layers import Usage
from laggard_agent.collectors.interface import recorded_by
from laggard_common.wire.schema import Component
from tests.support.builders.trees import tree

SYSFS = {
    "block/sda/device/wwid": "naa.5000c500a1b2c3d4\n",
    "block/sda/device/model": "ST16000NM001G   \n",
    "block/sda/queue/rotational": "1\n",
    "block/sda/size": "31251759104\n",
    "block/sda/sda1/partition": "1\n",
    # a member of md, through its partition
    "block/sdb/device/wwid": "naa.5000c500a1b2c3d5\n",
    "block/sdb/sdb1/partition": "1\n",
    "block/sdb/sdb1/holders/md0/x": "",
    "block/md0/md/uuid": "c8f6f0b1:0f0e0d0c:01020304:05060708\n",
    # two paths of one LUN under multipath, and a partition on top
    "block/sdc/device/wwid": "naa.600a0b80\n",
    "block/sdc/holders/dm-0/x": "",
    "block/sdd/device/wwid": "naa.600a0b80\n",
    "block/sdd/holders/dm-0/x": "",
    "block/dm-0/dm/uuid": "mpath-3600a0b80\n",
    "block/dm-0/slaves/sdc/device/model": "INF-01-00\n",
    "block/dm-1/dm/uuid": "part1-mpath-3600a0b80\n",
    # NVMe with native multipath: the head is the peer
    "block/nvme0n1/wwid": "eui.0025385b71b0a8c1\n",
    "block/nvme0n1/device/model": "SAMSUNG MZQL2\n",
    "block/nvme0n1/queue/rotational": "0\n",
    "block/nvme0c0n1/hidden": "1\n",
    "block/nvme7n1/hidden": "1\n",
    "block/vda/serial": "vol-0f3\n",
    "block/loop0/size": "8\n",
    "block/ram0/size": "8\n",
    "block/zram0/size": "8\n",
    "block/sr0/size": "8\n",
    "block/zd0/size": "8\n",
    "block/cciss!c0d0/size": "8\n",
}
NAMES = (
    "sda sda1 sdb sdb1 md0 sdc sdd dm-0 dm-1 nvme0n1 nvme0n1p1 nvme0c0n1 nvme7n1 vda loop0 ram0 zram0 sr0 zd0"
    " cciss/c0d0 gone"
)


def choose(
    sysfs: Path | None, names: str = NAMES, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()
) -> dict[str, Component]:
    devices = BlockDevices(sysfs, include, exclude)
    return components(devices, *names.split())


def components(devices: BlockDevices, *names: str, ms: int = 5) -> dict[str, Component]:
    disks = devices.select(dict.fromkeys(names, Usage(5, ms)))
    return {name: disk.component for name, disk in disks.items()}


def test_whole_disks_that_nothing_stands_above_are_the_peers(tmp_path: Path) -> None:
    found = choose(tree(tmp_path, SYSFS))
    assert list(found) == ["sda", "md0", "dm-0", "nvme0n1", "vda", "cciss/c0d0"]


class Reads:
    """A recorder of the files that are read."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def read(self, path: str, data: bytes) -> None:
        self.paths.append(path)

    def not_read(self, path: str, reason: str) -> None:
        """Nothing."""

    def named(self, path: str, *, is_folder: bool) -> None:
        """Nothing."""


def test_a_selection_reads_each_attribute_of_a_device_once(tmp_path: Path) -> None:
    reads = Reads()
    with recorded_by(reads):
        choose(tree(tmp_path, SYSFS), "sda vda nvme0n1 loop0", include=("sda", "vda", "nvme.*", "loop0"))
    assert any(path.endswith("loop0/size") for path in reads.paths)
    assert len(reads.paths) == len(set(reads.paths))


def test_identity_does_not_change_over_a_reboot(tmp_path: Path) -> None:
    ids = {name: component.id for name, component in choose(tree(tmp_path, SYSFS)).items()}
    assert ids == {
        "sda": "naa.5000c500a1b2c3d4",
        "md0": "c8f6f0b1:0f0e0d0c:01020304:05060708",
        "dm-0": "mpath-3600a0b80",
        "nvme0n1": "eui.0025385b71b0a8c1",
        "vda": "vol-0f3",
        "cciss/c0d0": "cciss/c0d0",
    }


def test_labels_tell_the_class(tmp_path: Path) -> None:
    found = choose(tree(tmp_path, SYSFS))
    assert dict(found["sda"].labels) == {
        "model": "ST16000NM001G",
        "rotational": "1",
        "size": str(31251759104 * 512),
    }
    assert dict(found["nvme0n1"].labels) == {"model": "SAMSUNG MZQL2", "rotational": "0"}
    assert dict(found["dm-0"].labels) == {"model": "INF-01-00"}


def test_labels_tell_the_attributes_that_disks_share(tmp_path: Path) -> None:
    """Firmware, host adapter and pool: as far as the kernel says."""
    sysfs = tree(
        tmp_path,
        {
            "block/sda/device/rev": "SN05\n",
            "block/sda/holders/md127/x": "",
            "block/nvme0n1/device/firmware_rev": "GDC5602Q  \n",
            "block/dm-3/dm/uuid": "LVM-l5mWjFbXoWZBqnBZgXEHsCwbyRpZTcAp\n",
            "block/dm-3/dm/name": "ost--pool-lv--0-x\n",
            "block/dm-4/dm/uuid": "LVM-l5mWjFbXoWZBqnBZgXEHsCwbyRpZTcAp\n",
            "block/sdb/size": "8\n",
            "devices/pci0000:00/0000:3b:00.0/host6/target6:0:1/6:0:1:0/type": "0\n",
            "devices/pci0000:00/0000:00:17.0/ata3/host2/target2:0:0/2:0:0:0/type": "0\n",
        },
    )
    for name, place in (
        ("sda", "pci0000:00/0000:3b:00.0/host6/target6:0:1/6:0:1:0"),
        ("sdc", "pci0000:00/0000:00:17.0/ata3/host2/target2:0:0/2:0:0:0"),
    ):
        folder = sysfs / "block" / name
        folder.mkdir(exist_ok=True)
        for entry in (folder / "device").glob("*"):
            entry.rename(sysfs / "devices" / place / entry.name)
        shutil.rmtree(folder / "device", ignore_errors=True)
        (folder / "device").symlink_to(sysfs / "devices" / place)
    found = choose(sysfs, "sda sdb sdc nvme0n1 dm-3 dm-4", include=("sda",))
    found |= choose(sysfs, "sdb sdc nvme0n1 dm-3 dm-4")
    assert {name: dict(component.labels) for name, component in found.items()} == {
        "sda": {"firmware": "SN05", "adapter": "0000:3b:00.0", "pool": "md127"},
        "sdb": {"size": "4096"},
        "sdc": {"adapter": "0000:00:17.0"},
        "nvme0n1": {"firmware": "GDC5602Q"},
        "dm-3": {"pool": "ost-pool"},
        "dm-4": {},
    }


def test_include_takes_what_it_names_whatever_it_is(tmp_path: Path) -> None:
    sysfs = tree(tmp_path, SYSFS)
    assert list(choose(sysfs, include=("loop.*", "sd[bc]"))) == ["sdb", "sdc", "loop0"]
    assert list(choose(sysfs, include=("sd.*",), exclude=("sd[a-c]", "sdb1", "sda1"))) == ["sdd"]


def test_patterns_match_whole_names(tmp_path: Path) -> None:
    sysfs = tree(tmp_path, SYSFS)
    assert "vda" in choose(sysfs, exclude=("vd",))
    assert "vda" not in choose(sysfs, exclude=("vd.",))
    assert list(choose(sysfs, include=("md0|vda",))) == ["md0", "vda"]
    assert list(choose(sysfs, include=("(?i)MD0", r"(v)da", r"(s)dd\1?"))) == ["md0", "sdd", "vda"]


def test_a_foreign_proc_is_not_filtered_by_sysfs() -> None:
    found = choose(None, "sda sda1 dm-0 loop0 ram3 zd16 nvme0c0n1")
    assert found == {name: Component(name, name) for name in ("sda", "sda1", "dm-0")}
    assert list(choose(None, "loop20 sda", include=("loop.*",))) == ["loop20"]


def test_two_paths_without_multipath_are_two_components(tmp_path: Path) -> None:
    wwid = {f"block/{name}/device/wwid": "naa.1\n" for name in ("sda", "sdb")}
    found = choose(tree(tmp_path, wwid), "sda sdb")
    assert [component.id for component in found.values()] == ["naa.1@sda", "naa.1@sdb"]


@pytest.mark.parametrize("text", ["", "\n", "\x00\x01", "\x1b[2J"])
def test_identities_that_cannot_be_used_fall_back_to_the_name(tmp_path: Path, text: str) -> None:
    found = choose(tree(tmp_path, {"block/sda/device/wwid": text, "block/sda/size": "many"}), "sda")
    assert found["sda"] == Component("sda", "sda")


def test_hostile_names_do_not_leave_the_tree(tmp_path: Path) -> None:
    tree(tmp_path, {"block/sda/size": "1", "secret/size": "1"})
    assert choose(tmp_path, "../secret . .. /etc") == {}


def test_a_device_that_went_since_its_name_was_read_is_what_it_was(tmp_path: Path) -> None:
    tree(tmp_path, {"block/sda/size": "8", "block/sdb/device/wwid": "naa.5"})
    devices = BlockDevices(tmp_path)
    before = components(devices, "sda", "sdb")
    shutil.rmtree(tmp_path / "block/sdb")
    assert components(devices, "sda", "sdb") == before  # of a tick before it went
    assert list(components(devices, "sda")) == ["sda"]
    assert list(components(devices, "sda", "sdb")) == ["sda"]  # nothing is known of this one
