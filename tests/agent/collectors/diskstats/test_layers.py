"""Devices above others: whoever counts stands for the others, and each request is counted once."""

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.collectors.diskstats.block_devices import BlockDevices
from laggard_agent.collectors.diskstats.collector import FIELDS, Diskstats, DiskstatsSettings
from laggard_agent.collectors.diskstats.layers import Usage
from laggard_agent.collectors.interface import Reading
from tests.support.builders.trees import disk_line, tree
from tests.support.clock import FakeClock
from tests.support.sampled import surroundings

BUSY = Usage(40_000, 460_000)
UNTIMED = Usage(80_000, 0)
IDLE = Usage(0, 0)

MD = {
    "sys/block/sda/sda1/partition": "1",
    "sys/block/sda/sda1/holders/md0/x": "",
    "sys/block/sdb/sdb1/partition": "1",
    "sys/block/sdb/sdb1/holders/md0/x": "",
    "sys/block/md0/md/uuid": "a1b2c3d4:00000001",
}
LVM_ON_MD = {**MD, "sys/block/md0/holders/dm-0/x": "", "sys/block/dm-0/dm/uuid": "LVM-abc"}
NVME = {
    "sys/block/nvme0c0n1/hidden": "1",
    "sys/block/nvme0c1n1/hidden": "1",
    "sys/block/nvme0n1/wwid": "eui.0025385b11111111",
    "sys/block/nvme0n1/device/model": "X",
}
MPATH = {
    "sys/block/sda/holders/dm-0/x": "",
    "sys/block/sdb/holders/dm-0/x": "",
    "sys/block/dm-0/dm/uuid": "mpath-3600",
    "sys/block/dm-0/queue/iostats": "0",
}


def selected(root: Path, files: dict[str, str], **usage: Usage) -> dict[str, tuple[str, ...]]:
    devices = BlockDevices(tree(root, files) / "sys")
    disks = devices.select({name.replace("_", "-"): value for name, value in usage.items()})
    return {name: disk.parts for name, disk in disks.items()}


def test_members_stand_for_md_without_times(tmp_path: Path) -> None:
    alone = {"sda": ("sda",), "sdb": ("sdb",)}
    assert selected(tmp_path, MD, sda=BUSY, sdb=BUSY, md0=UNTIMED) == alone
    assert selected(tmp_path, MD, sda=BUSY, sdb=BUSY, md0=BUSY) == {"md0": ("md0",)}
    assert selected(tmp_path, MD, sda=BUSY, sdb=BUSY, md0=IDLE) == {"md0": ("md0",)}


def test_members_stand_for_md_whose_counters_are_switched_off(tmp_path: Path) -> None:
    files = {**MD, "sys/block/md0/queue/iostats": "0"}
    assert list(selected(tmp_path, files, sda=BUSY, sdb=BUSY, md0=IDLE)) == ["sda", "sdb"]
    assert list(selected(tmp_path, files, sda=BUSY, sdb=BUSY, md0=BUSY)) == ["md0"], "older kernels count"


def test_the_topmost_device_that_counts_stands_for_all_below(tmp_path: Path) -> None:
    def peers(md0: Usage, dm: Usage) -> list[str]:
        return list(selected(tmp_path, LVM_ON_MD, sda=BUSY, sdb=BUSY, md0=md0, dm_0=dm))

    assert peers(BUSY, BUSY) == ["dm-0"]
    assert peers(UNTIMED, BUSY) == ["dm-0"]
    assert peers(BUSY, UNTIMED) == ["md0"]
    assert peers(UNTIMED, UNTIMED) == ["sda", "sdb"]


def test_opt_in_members_do_not_replace_a_device(tmp_path: Path) -> None:
    files = {"sys/block/loop0/holders/md0/x": "", "sys/block/md0/md/uuid": "a1b2"}
    assert list(selected(tmp_path, files, loop0=BUSY, md0=UNTIMED)) == ["md0"]


def test_the_head_of_nvme_paths_has_their_sums_unless_it_counts(tmp_path: Path) -> None:
    def parts(head: Usage) -> dict[str, tuple[str, ...]]:
        return selected(tmp_path, NVME, nvme0c0n1=BUSY, nvme0c1n1=BUSY, nvme0n1=head)

    assert parts(IDLE) == {"nvme0n1": ("nvme0c0n1", "nvme0c1n1")}
    assert parts(UNTIMED) == {"nvme0n1": ("nvme0c0n1", "nvme0c1n1")}
    assert parts(Usage(1, 1)) == {"nvme0n1": ("nvme0n1",)}


def test_dm_multipath_that_is_switched_off_has_the_sums_of_its_paths(tmp_path: Path) -> None:
    assert selected(tmp_path, MPATH, sda=BUSY, sdb=BUSY, dm_0=IDLE) == {"dm-0": ("sda", "sdb")}
    assert selected(tmp_path, MPATH, sda=BUSY, sdb=BUSY, dm_0=BUSY) == {"dm-0": ("dm-0",)}


def test_a_multipath_disk_stands_for_its_partitions(tmp_path: Path) -> None:
    files = {
        **MPATH,
        "sys/block/dm-0/queue/iostats": "1",
        "sys/block/dm-0/holders/dm-1/x": "",
        "sys/block/dm-1/dm/uuid": "part1-mpath-3600",
    }
    alone = selected(tmp_path, files, sda=BUSY, sdb=BUSY, dm_0=BUSY, dm_1=BUSY)
    assert alone == {"dm-0": ("dm-0",)}
    volume = {"sys/block/dm-1/holders/dm-2/x": "", "sys/block/dm-2/dm/uuid": "LVM-abc"}
    below = {"sda": BUSY, "sdb": BUSY, "dm_0": BUSY, "dm_1": BUSY}
    assert selected(tmp_path, files | volume, **below, dm_2=BUSY) == {"dm-2": ("dm-2",)}
    assert selected(tmp_path, files | volume, **below, dm_2=UNTIMED) == {"dm-0": ("dm-0",)}


def test_a_multipath_disk_with_partitions_counts_by_sysfs_alone(tmp_path: Path) -> None:
    files = {**MPATH, "sys/block/dm-0/holders/dm-1/x": "", "sys/block/dm-1/dm/uuid": "part1-mpath-3600"}
    devices = BlockDevices(tree(tmp_path / "alone", files) / "sys")
    assert [devices.is_peer(name) for name in ("sda", "sdb", "dm-0", "dm-1")] == [False, False, True, False]
    files |= {"sys/block/dm-1/holders/dm-2/x": "", "sys/block/dm-2/dm/uuid": "LVM-abc"}
    devices = BlockDevices(tree(tmp_path / "volume", files) / "sys")
    assert [devices.is_peer(name) for name in ("sda", "dm-0", "dm-1", "dm-2")] == [False, False, False, True]


def test_holders_in_a_circle_end(tmp_path: Path) -> None:
    files = {"sys/block/dm-0/holders/dm-1/x": "", "sys/block/dm-1/holders/dm-0/x": ""}
    assert selected(tmp_path, files, dm_0=UNTIMED, dm_1=UNTIMED) == {}


@given(
    st.lists(st.lists(st.integers(0, 7), max_size=2), min_size=2, max_size=6),
    st.lists(st.sampled_from([BUSY, UNTIMED, IDLE]), min_size=8, max_size=8),
)
def test_nobody_is_counted_with_one_above_it_that_counts(
    tmp_path_factory: pytest.TempPathFactory, above: list[list[int]], usages: list[Usage]
) -> None:
    """Layers of any shape: device i may be held by devices of higher numbers."""
    files, holders = {}, dict[str, list[str]]()
    for at, held in enumerate(above):
        name = f"dm-{at}"
        files[f"sys/block/{name}/size"] = "8"
        holders[name] = [f"dm-{other}" for other in held if at < other < len(above)]
        files |= {f"sys/block/{name}/holders/{other}/x": "" for other in holders[name]}
    usage = {f"dm-{at}": usages[at] for at in range(len(above))}
    devices = BlockDevices(tree(tmp_path_factory.mktemp("layers"), files) / "sys")
    peers = set(devices.select(usage))

    def all_above(name: str) -> set[str]:
        return {upper for one in holders[name] for upper in {one, *all_above(one)}}

    for name, own in usage.items():
        above_it = all_above(name)
        if name in peers:
            assert not [upper for upper in above_it if usage[upper] == BUSY], f"{name} is counted twice"
        elif own == BUSY:
            assert peers & above_it, f"{name} is not counted"


# -- the collector


def collector(root: Path, clock: FakeClock | None = None) -> Diskstats:
    around = surroundings(
        monotonic_ns=(clock or FakeClock()).monotonic_ns, procfs=root / "proc", sysfs=root / "sys"
    )
    return Diskstats(DiskstatsSettings(), around)


def read(disks: Diskstats) -> dict[str, dict[str, int | float | None]]:
    (reading,) = disks.read()
    return rows_of(reading)


def rows_of(reading: Reading) -> dict[str, dict[str, int | float | None]]:
    names = [field.name for field in reading.fields]
    return {
        component.name: dict(zip(names, row, strict=True))
        for component, row in zip(reading.components, reading.rows, strict=True)
    }


def line(name: str, requests: int, ms: int) -> str:
    return disk_line(name, requests, 1, requests * 8, ms, 0, 0, 0, 0, 0, ms, ms)


def test_sums_of_paths_are_rows(tmp_path: Path) -> None:
    lines = line("nvme0c0n1", 5, 50) + line("nvme0c1n1", 7, 70) + line("nvme0n1", 0, 0)
    disks = collector(tree(tmp_path, {**NVME, "proc/diskstats": lines}))
    row = read(disks)["nvme0n1"]
    assert (row["rd_ios"], row["rd_sectors"], row["rd_ms"], row["dc_ios"]) == (12, 96, 120, None)
    tree(tmp_path, {"proc/diskstats": lines.replace(line("nvme0c1n1", 7, 70), line("nvme0c1n1", 9, 90))})
    assert read(disks)["nvme0n1"]["rd_ios"] == 14


def test_a_head_that_begins_to_count_is_not_added_to_its_paths(tmp_path: Path) -> None:
    paths = line("nvme0c0n1", 5, 50) + line("nvme0c1n1", 7, 70)
    disks = collector(tree(tmp_path, {**NVME, "proc/diskstats": paths + line("nvme0n1", 0, 0)}))
    assert read(disks)["nvme0n1"]["rd_ios"] == 12
    tree(tmp_path, {"proc/diskstats": paths + line("nvme0n1", 3, 30)})
    row = read(disks)["nvme0n1"]
    assert (row["rd_ios"], bool(row["start_time"])) == (3, True)


def test_md_that_turns_out_to_have_no_times_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    disks = collector(tree(tmp_path, {**MD, "proc/diskstats": ""}))
    seen = []
    for requests in (0, 50, 150, 160):
        members = line("sda", requests, requests * 10) + line("sdb", requests, requests * 10)
        tree(tmp_path, {"proc/diskstats": members + line("md0", requests, 0)})
        seen.append(list(read(disks)))
    assert seen == [["md0"], ["md0"], ["sda", "sdb"], ["sda", "sdb"]]
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "collector diskstats: md0 does not count the times of its requests: compared in its place: sda, sdb"
    ]


def test_times_of_a_disk_that_has_none_are_unknown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = {"sys/block/sda/size": "8", "proc/diskstats": line("sda", 5000, 0)}
    row = read(collector(tree(tmp_path, files)))["sda"]
    assert row["rd_ios"] == 5000
    assert [name for name in row if name.endswith("_ms") and row[name] is not None] == []
    assert "sda counts requests but not their times" in caplog.text


def test_a_disk_whose_counters_are_switched_off_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = {
        "sys/block/sda/queue/iostats": "0",
        "sys/block/sda/device/model": "X",
        "sys/block/sdb/queue/iostats": "1",
        "proc/diskstats": line("sda", 10, 10) + line("sdb", 10, 10),
    }
    assert list(read(collector(tree(tmp_path, files)))) == ["sdb"]
    assert "echo 1 > /sys/block/sda/queue/iostats" in caplog.text


def test_lines_not_understood_are_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old_partition = "   8       1 sda1 35486 38030 38030 38030\n"
    tree(tmp_path, {"sys/block/sda/size": "8"})
    disks = collector(tmp_path)
    for count in (5, 6, 7):
        torn = line("sda", count, count) + old_partition + "   8      16 sdb 1 2"
        tree(tmp_path, {"proc/diskstats": torn})
        assert list(read(disks)) == ["sda"]
    assert [record.getMessage() for record in caplog.records] == [
        f"collector diskstats: {tmp_path}/proc/diskstats: 1 lines not understood, the first: "
        "'   8      16 sdb 1 2'"
    ]


def test_a_plain_node_has_the_fields_of_the_kernel(tmp_path: Path) -> None:
    tree(tmp_path, {"sys/block/sda/size": "8", "proc/diskstats": line("sda", 5, 5)})
    (reading,) = collector(tmp_path).read()
    assert reading.fields is FIELDS
