from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.collectors.diskstats.block_devices import BlockDevices, Disk
from laggard_agent.collectors.diskstats.collector import (
    FIELDS,
    Diskstats,
    DiskstatsSettings,
    parse,
)
from laggard_agent.collectors.diskstats.layers import Usage
from laggard_agent.collectors.interface import Reading
from laggard_common.errors import CollectError
from laggard_common.trace_formats import kernel_text
from laggard_common.wire.schema import Component
from tests.support.builders.trees import disk_line, tree
from tests.support.clock import FakeClock
from tests.support.sampled import surroundings
from tests.support.shared_data import shared

NAMES = [field.name for field in FIELDS]
OLD = tuple(range(1, 12))
DISCARDS = tuple(range(1, 16))
FLUSHES = tuple(range(1, 18))


def named(data: str) -> dict[str, tuple[int | float | None, ...]]:
    return {name.decode(): tuple(row) for name, row in parse(data.encode(), {}).values() if name}


def collector(procfs: Path, include: tuple[str, ...] = ()) -> Diskstats:
    return Diskstats(DiskstatsSettings(include), surroundings(lambda: 123, procfs=procfs, sysfs=None))


def read(disks: Diskstats) -> Reading:
    (reading,) = disks.read()
    return reading


def test_the_three_kernels_columns() -> None:
    rows = named(disk_line("sda", *OLD) + disk_line("sdb", *DISCARDS) + disk_line("sdc", *FLUSHES))
    assert rows["sda"] == (*OLD, *[None] * 6)
    assert rows["sdb"] == (*DISCARDS, None, None)
    assert rows["sdc"] == FLUSHES
    assert dict(zip(NAMES, rows["sdc"], strict=True)) == {
        "rd_ios": 1, "rd_merges": 2, "rd_sectors": 3, "rd_ms": 4,
        "wr_ios": 5, "wr_merges": 6, "wr_sectors": 7, "wr_ms": 8,
        "in_flight": 9, "io_ms": 10, "weighted_ms": 11,
        "dc_ios": 12, "dc_merges": 13, "dc_sectors": 14, "dc_ms": 15,
        "fl_ios": 16, "fl_ms": 17,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("count", "known"), [(10, 0), (11, 11), (12, 11), (14, 11), (15, 15), (16, 15), (17, 17), (25, 17)]
)
def test_other_numbers_of_columns_keep_the_whole_groups(count: int, known: int) -> None:
    rows = named(disk_line("sda", *range(1, count + 1)))
    assert [sum(value is not None for value in row) for row in rows.values()] == ([known] if known else [])


@pytest.mark.parametrize("printed", [2**32 - 1, 2**64 - 7])
def test_requests_in_flight_below_zero_are_unknown(printed: int) -> None:
    line = disk_line("sda", 1, 2, 3, 4, 5, 6, 7, 8, printed, 10, 11).encode()
    name, row = kernel_text.disk_line(line)
    assert (name, row[8], row[9]) == (b"sda", None, 10)
    assert len(row) == len(kernel_text.DISK_COUNTERS)


def test_hostile_lines_are_left_out() -> None:
    good = disk_line("sda", *FLUSHES)
    bad = [
        disk_line("sdb", *FLUSHES).replace(" 5 ", " x "),
        disk_line("sdc", *FLUSHES).replace(" 5 ", " -5 "),
        disk_line("sdd", *FLUSHES).replace(" 5 ", f" {2**64} "),
        "\n",
        "   8       0 sde\n",
        "\x00\xff" * 20 + "\n",
        "9" * 100_000 + "\n",
    ]
    assert list(named(good + "".join(bad))) == ["sda"]


@given(st.binary(max_size=400))
def test_arbitrary_bytes_give_rows_or_nothing(data: bytes) -> None:
    for name, row in parse(data, {}).values():
        assert not name or len(row) == len(FIELDS)


WORDS = st.sampled_from([b"0", b"7", b"18446744073709551615", b"18446744073709551616", b"-1", b"x", b"1_0"])
LINES = st.builds(
    lambda name, words: b"   8       0 " + name + b" " + b" ".join(words),
    st.sampled_from([b"sda", b"sdb", b"dm-0", b"8"]),
    st.lists(WORDS, min_size=9, max_size=20) | st.lists(st.just(b"5"), min_size=17, max_size=17),
)


@given(st.lists(LINES | st.just(b""), max_size=6), st.integers(0, 6))
def test_lines_known_from_the_read_before_are_parsed_as_new_ones(lines: list[bytes], known: int) -> None:
    alone = {line: kernel_text.disk_line(line) for line in lines}
    before = parse(b"\n".join([*lines[:known], b""]), {})
    assert parse(b"\n".join([*lines, b""]), before) == alone


def test_every_truncation_gives_whole_rows() -> None:
    whole = disk_line("sda", *FLUSHES) + disk_line("sdb", *FLUSHES)
    for end in range(len(whole)):
        for row in named(whole[:end]).values():
            assert len(row) == len(FIELDS)


def test_an_unchanged_line_is_the_same_object_and_a_changed_one_is_new(tmp_path: Path) -> None:
    tree(tmp_path, {"diskstats": disk_line("sda", *FLUSHES) + disk_line("sdb", *FLUSHES)})
    disks = collector(tmp_path)
    first = read(disks)
    tree(tmp_path, {"diskstats": disk_line("sda", *FLUSHES) + disk_line("sdb", 99, *FLUSHES[1:])})
    second = read(disks)
    assert second.rows[0] is first.rows[0]
    assert second.rows[1] == (99, *FLUSHES[1:])
    assert second.components is first.components
    assert second.read_at_ns == 123


def test_devices_come_and_go(tmp_path: Path) -> None:
    disks = collector(tmp_path)
    seen = []
    for names in (["sda"], ["sda", "sdb"], ["sdb"], []):
        tree(tmp_path, {"diskstats": "".join(disk_line(name, *FLUSHES) for name in names)})
        reading = read(disks)
        seen.append([component.name for component in reading.components])
        assert len(reading.rows) == len(reading.components)
    assert seen == [["sda"], ["sda", "sdb"], ["sdb"], []]


class Changing(BlockDevices):
    """Selects `wanted`, and counts the selections."""

    def __init__(self) -> None:
        super().__init__(None)
        self.wanted: tuple[bytes, ...] = ()
        self.undecided_until = 0
        self.selections = 0

    def select(self, usage: Mapping[str, Usage]) -> dict[str, Disk]:
        self.selections += 1
        wanted = [name.decode() for name in self.wanted]
        return {
            name: Disk(Component(name, name), (name,), undecided_until=self.undecided_until)
            for name in usage
            if name in wanted
        }


def changing(procfs: Path, devices: Changing, clock: FakeClock) -> Diskstats:
    around = surroundings(monotonic_ns=clock.monotonic_ns, procfs=procfs)
    return Diskstats(DiskstatsSettings(), around, devices)


@pytest.mark.parametrize(("ms", "until", "selections"), [(0, 100, 2), (3, 100, 1), (3, 1, 2)])
def test_a_disk_is_selected_anew_when_its_requests_may_decide_about_it(
    tmp_path: Path, ms: int, until: int, selections: int
) -> None:
    """One whose requests have times counts, as it was taken to; only one without counters may differ."""
    clock, devices = FakeClock(), Changing()
    devices.wanted, devices.undecided_until = (b"sda",), until
    disks = changing(tmp_path, devices, clock)
    for requests, spent in ((0, 0), (0, 0), (50, ms), (150, ms), (150, ms)):
        tree(tmp_path, {"diskstats": disk_line("sda", requests, 0, 0, spent, *(0,) * 7)})
        read(disks)
        devices.undecided_until = 0
        clock.sleep(1)
    assert devices.selections == selections


def test_devices_are_selected_when_a_name_comes_or_goes_a_minute_later_and_every_ten(tmp_path: Path) -> None:
    clock, devices = FakeClock(), Changing()
    devices.wanted = (b"sda", b"sdb")
    disks = changing(tmp_path, devices, clock)
    tree(tmp_path, {"diskstats": disk_line("sda", *FLUSHES)})
    first = read(disks).components
    clock.sleep(59)
    assert (read(disks).components, devices.selections) == (first, 1)
    tree(tmp_path, {"diskstats": disk_line("sda", *FLUSHES) + disk_line("sdb", *FLUSHES)})
    assert [c.id for c in read(disks).components] == ["sda", "sdb"]
    devices.wanted = (b"sda",)  # sdb becomes a member of another device
    clock.sleep(59)
    assert [c.id for c in read(disks).components] == ["sda", "sdb"]
    clock.sleep(1)
    assert [c.id for c in read(disks).components] == ["sda"]
    assert devices.selections == 3
    clock.sleep(599)
    read(disks)
    assert devices.selections == 3
    clock.sleep(1)
    read(disks)
    assert devices.selections == 4


def test_a_device_that_is_wanted_late_has_its_row_at_once(tmp_path: Path) -> None:
    lines = disk_line("sda", *FLUSHES) + disk_line("sda1", *OLD) + disk_line("sdb", *DISCARDS)
    clock, devices = FakeClock(), Changing()
    disks = changing(tree(tmp_path, {"diskstats": lines}), devices, clock)
    for wanted in ([], [b"sda"], [b"sda", b"sdb"], [b"sdb"]):
        devices.wanted = tuple(wanted)
        clock.sleep(600)
        for _ in range(2):
            rows = dict(zip(devices.wanted, read(disks).rows, strict=True))
            assert rows == {name: named(lines)[name.decode()] for name in wanted}


def test_an_unwanted_line_that_cannot_be_read_when_it_is_wanted_is_left_out(tmp_path: Path) -> None:
    clock, devices = FakeClock(), Changing()
    devices.wanted = (b"sda",)
    good = disk_line("sda", *FLUSHES)
    tree(tmp_path, {"diskstats": good + disk_line("sdb", *FLUSHES)})
    disks = changing(tmp_path, devices, clock)
    assert len(read(disks).rows) == 1
    tree(tmp_path, {"diskstats": good + disk_line("sdb", *FLUSHES).replace(" 5 ", " x ")})
    devices.wanted = (b"sda", b"sdb")
    clock.sleep(60)
    assert read(disks).rows == [FLUSHES]


def test_equal_bytes_give_the_same_rows_at_another_time(tmp_path: Path) -> None:
    times = iter(range(100, 200))
    tree(tmp_path, {"diskstats": disk_line("sda", *FLUSHES) + disk_line("sdb", *FLUSHES)})
    disks = Diskstats(DiskstatsSettings(), surroundings(times.__next__, procfs=tmp_path, sysfs=None))
    first, second = read(disks), read(disks)
    assert (first.read_at_ns, second.read_at_ns) == (100, 101)
    assert second.components is first.components
    assert all(a is b for a, b in zip(first.rows, second.rows, strict=True))


def test_a_file_that_is_not_diskstats_any_more_fails_at_every_read(tmp_path: Path) -> None:
    disks = collector(tree(tmp_path, {"diskstats": disk_line("sda", *FLUSHES)}))
    assert len(read(disks).rows) == 1
    tree(tmp_path, {"diskstats": "something else\n"})
    for _ in range(2):
        with pytest.raises(CollectError, match="no line has"):
            read(disks)


def test_an_empty_file_is_no_failure(tmp_path: Path) -> None:
    assert read(collector(tree(tmp_path, {"diskstats": ""}))).rows == []


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "No such file or directory"),
        ({"diskstats/x": ""}, "Is a directory"),
        ({"diskstats": "something else\n"}, "no line has the 14, 18 or 20 columns of diskstats"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, files: dict[str, str], reason: str) -> None:
    with pytest.raises(CollectError) as caught:
        read(collector(tree(tmp_path, files)))
    assert str(caught.value) == f"{tmp_path}/diskstats: {reason}"


@pytest.mark.shared_data
def test_a_mixture_of_kernels(tmp_path: Path) -> None:
    """node_exporter's capture: 14, 18 and 20 columns, partitions, ram, loop, dm, nvme, mmc, sr."""
    rows = named(shared("diskstats/node_exporter/diskstats").read_text())
    assert rows["sda"][:4] == (25354637, 34367663, 1003346126, 18492372)
    assert rows["sda"][11:] == (None,) * 6
    assert rows["sdb"][11:] == (68851, 0, 1925173784, 11130, None, None)
    assert rows["sdc"][15:] == (1555, 1944)
    reading = read(collector(shared("diskstats/node_exporter")))
    shown = {component.name for component in reading.components}
    assert {"sda", "sda1", "dm-0", "mmcblk0p2", "nvme0n1"} <= shown
    assert not any(name.startswith(("ram", "loop", "sr", "fd")) for name in shown)


@pytest.mark.shared_data
@pytest.mark.parametrize("snapshot", ["1", "2", "3", "4", "5", "6", "6b", "7"])
def test_sysstats_snapshots(snapshot: str) -> None:
    text = shared(f"diskstats/sysstat/diskstats.root{snapshot}").read_text()
    rows = named(text)
    lines = [line.split() for line in text.splitlines()]
    assert list(rows) == [line[2] for line in lines if len(line) >= 14]
    for line in lines:
        if len(line) >= 14:
            whole = max(known for known in (14, 18, 20) if known <= len(line))
            known = [int(column) for column in line[3:whole]]
            assert [value for value in rows[line[2]] if value is not None] == known
