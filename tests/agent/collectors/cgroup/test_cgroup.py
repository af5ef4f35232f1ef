"""The collector `cgroup` over fixtures of both versions, and over trees that change or are hostile."""

import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.collectors.cgroup.collector import Cgroup, CgroupSettings
from laggard_agent.collectors.cgroup.counters import (
    NotUnderstoodError,
    parse_blkio,
    parse_cpu_stat,
    parse_cpuacct,
    parse_io_stat,
    parse_number,
)
from tests.support.builders.slurm_cgroups import SLUID, Host
from tests.support.sampled import Sampled, surroundings

IO = ("read_bytes", "written_bytes", "read_ios", "write_ios")


def test_version_1(tmp_path: Path) -> None:
    host = Host(tmp_path, "v1").sample()
    assert host.ids() == ["node01/2", "node02/4", "node02/8"]
    row = host.row("node02/4")
    assert (row["uid"], row["cpu_us"], row["memory_bytes"]) == (2001, 81_432, 5_341_184)
    assert [row[name] for name in IO] == [1_052_672, 268_435_456, 31, 256]  # of vda, not of its loop device
    assert [host.row("node01/2")[name] for name in IO] == [None, None, None, None]  # no folder in blkio
    labels = [dict(component.labels) for component in host.sampled.readings["cgroup"].components]
    assert labels[1] == {"job": "4", "slurm_node": "node02"}
    assert host.node() == {"jobs": 3, "jobs_left_out": 0, "files_failed": 0, "values_not_understood": 0}


def test_a_kernel_that_does_not_count(tmp_path: Path) -> None:
    """Since Linux 6.10 v1 lists no device before a limit was set: the values are unknown, not 0."""
    host = Host(tmp_path, "v1").sample()
    assert host.row("node02/8")["read_bytes"] == 0
    host = Host(tmp_path / "other", "v1")
    (host.root / "fs/cgroup/blkio/blkio.throttle.io_service_bytes_recursive").write_text("Total 0\n")
    assert host.sample().row("node02/8")["read_bytes"] is None
    assert host.row("node02/4")["written_bytes"] == 268_435_456


def test_version_2(tmp_path: Path) -> None:
    host = Host(tmp_path, "v2").sample()
    assert host.ids() == ["52", "53", SLUID]
    row = host.row("52")
    assert [row[name] for name in IO] == [4_194_304, 1_073_741_824, 64, 1024]
    assert (row["uid"], row["cpu_us"], row["memory_bytes"]) == (None, 2_345_678, 8_392_704)
    assert [host.row("53")[name] for name in IO] == [0, 0, 0, 0]  # a device without I/O
    assert host.row(SLUID)["read_bytes"] is None  # the controller io is not enabled


def test_jobs_come_and_go(tmp_path: Path) -> None:
    host = Host(tmp_path, "v2").sample()
    assert host.row("52")["seen_since"] is None  # older than the agent
    first = host.sampled.readings["cgroup"].components
    assert host.sample().sampled.readings["cgroup"].components is first
    host.add("60").sample()
    assert host.ids() == ["52", "53", SLUID, "60"]
    assert host.row("60")["seen_since"] == host.sampled.clock.wall_ns() / 1e9
    seen, number = host.row("60")["seen_since"], host.row("60")["cgroup_id"]
    assert host.sample().row("60")["seen_since"] == seen
    host.remove("52").sample()
    assert host.ids() == ["53", SLUID, "60"]
    host.replace("60").sample()  # a requeue between two samples
    assert host.row("60")["cgroup_id"] != number
    assert host.row("60")["seen_since"] == host.sampled.clock.wall_ns() / 1e9
    host.remove("53").remove(SLUID).remove("60").sample()
    assert "cgroup" not in host.sampled.readings
    assert host.node()["jobs"] == 0


def test_counters_are_read_again(tmp_path: Path) -> None:
    host = Host(tmp_path, "v2").sample()
    host.write("52/io.stat", "254:0 rbytes=5 wbytes=6 rios=7 wios=8 dbytes=0 dios=0\n")
    host.write("52/cpu.stat", "usage_usec 99\nuser_usec 1\n")
    host.sample()
    assert [host.row("52")[name] for name in IO] == [5, 6, 7, 8]
    for _ in range(10):  # CPU time and memory at every tenth sample
        host.sample()
    assert host.row("52")["cpu_us"] == 99


def test_most_jobs(tmp_path: Path) -> None:
    host = Host(tmp_path, "v2", max_jobs=2).sample()
    assert host.ids() == ["52", "53"]
    assert (host.node()["jobs"], host.node()["jobs_left_out"]) == (2, 1)
    assert host.add("9").sample().ids() == ["52", "53"]  # the known ones stay
    assert host.remove("52").sample().ids()[0] == "53"
    assert host.node() == {"jobs": 2, "jobs_left_out": 1, "files_failed": 0, "values_not_understood": 0}


def test_devices_can_be_chosen(tmp_path: Path) -> None:
    host = Host(tmp_path, "v1", include=("loop0",)).sample()
    assert [host.row("node02/4")[name] for name in IO] == [0, 268_435_456, 0, 256]


def test_steps_and_other_folders_are_no_jobs(tmp_path: Path) -> None:
    host = Host(tmp_path, "v2")
    known = ["52", "53", SLUID]
    for name in (
        "job_",
        "job_0",
        "job_1x",
        "job_99999999999",
        "job_-1",
        "slurmd",
        "uid_3",
        "job_7\n",
    ):
        host.add(name, name)
    host.add("x", SLUID.replace("T", "U")).add("x", f"{SLUID}0").add("x", SLUID.lower())
    assert host.sample().ids() == known
    assert host.node()["jobs_left_out"] == 0


def test_names_of_any_bytes(tmp_path: Path) -> None:
    host = Host(tmp_path, "v2")
    chance = random.Random(7)
    for _ in range(200):
        name = bytes(chance.choice(b"job_019\xff\xc3\n |'\"$;s") for _ in range(chance.randint(1, 20)))
        for folder in (host.scope, host.scope.parent):
            os.makedirs(os.fsencode(folder) + b"/" + name, exist_ok=True)  # noqa: PTH103 - bytes
    ids = host.sample().ids()
    assert set(ids) >= {"52", "53", SLUID}
    assert all(id_ == SLUID or id_.isdigit() for id_ in ids)


def test_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    host = Host(tmp_path, "v1")
    folder = tmp_path / "fs/cgroup/freezer"
    (folder / "slurm_node03").write_text("")
    (folder / "slurm_node02/uid_7").write_text("")
    (folder / "slurm_node02/uid_2001/job_77").write_text("")
    assert host.sample().ids() == ["node01/2", "node02/4", "node02/8"]


def test_nothing_of_slurm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sampled = Sampled(lambda now, mono: Cgroup(CgroupSettings(), surroundings(now, mono, sysfs=tmp_path)))
    for _ in range(3):
        assert sampled.sample().error == ""
    assert list(sampled.readings) == ["cgroup_node"]
    assert len(caplog.records) == 1
    host = Host(tmp_path, "v2", sampled=sampled)  # slurmd starts later
    assert host.sample().ids() == ["52", "53", SLUID]


def test_without_sysfs() -> None:
    sampled = Sampled(lambda now, mono: Cgroup(CgroupSettings(), surroundings(now, mono, sysfs=None)))
    assert sampled.sample().ids("cgroup") == []


def test_a_tree_that_vanishes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each call of the kernel in turn the whole tree is gone from then on."""
    calls = 0
    gone_at = 0
    scandir, pread = os.scandir, os.pread
    host = Host(tmp_path / "0", "v2")

    def vanish() -> None:
        nonlocal calls
        calls += 1
        if calls == gone_at:
            shutil.rmtree(host.root, ignore_errors=True)

    def scandir_then(*args: object) -> object:
        vanish()
        return scandir(*args)  # type: ignore[call-overload]

    def pread_then(*args: int) -> bytes:
        vanish()
        return pread(*args)

    monkeypatch.setattr(os, "scandir", scandir_then)
    monkeypatch.setattr(os, "pread", pread_then)
    for gone_at in range(1, 20):
        calls = 0
        host = Host(tmp_path / str(gone_at), "v2")
        host.sampled.sample()
        assert host.sampled.error == ""
        host.sampled.sample()
        assert host.sampled.error == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
def test_permission_denied(tmp_path: Path) -> None:
    for parent in (tmp_path, *tmp_path.parents):
        if parent.owner() == "root" and parent.stat().st_mode & 0o005 == 0:
            parent.chmod(0o755)
    host = Host(tmp_path, "v2")
    (host.scope / "job_52/io.stat").chmod(0)
    os.seteuid(65534)
    try:
        host.sampled.sample()
        assert "io.stat: Permission denied" in host.sampled.error
        assert host.ids() == ["52", "53", SLUID]
        assert host.row("52")["read_bytes"] is None
        assert host.row("52")["cpu_us"] == 2_345_678
        os.seteuid(0)
        host.scope.chmod(0)
        os.seteuid(65534)
        host.sampled.sample()
        assert "slurmstepd.scope: Permission denied" in host.sampled.error
    finally:
        os.seteuid(0)


def everything(_: bytes) -> bool:
    return True


PARSED = (
    (b"254:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n7:0 \n", (1, 2, 3, 4)),
    (b"", (0, 0, 0, 0)),
    (
        b"8:0 rbytes=1 wbytes=2 rios=3 wios=4 cost.usage=9\n8:16 rbytes=1 wbytes=1 rios=1 wios=1\n",
        (2, 3, 4, 5),
    ),
)


@pytest.mark.parametrize(("data", "values"), PARSED)
def test_io_stat(data: bytes, values: tuple[int, ...]) -> None:
    assert parse_io_stat(data, everything) == (values, [])


GOOD = b"8:0 rbytes=1 wbytes=2 rios=3 wios=4\n"
ODD = (
    b"8 rbytes=1\n",
    b"8:1 rbytes=x wbytes=1 rios=1 wios=1\n",
    b"8:1 rbytes=1\n",
    b"\n",
    b"8:1 rbytes=1 wbytes=1 rios=1 wios=%d\n" % 2**64,
    b"rbytes=1 8:1 wbytes=1 rios=1 wios=1\n",
)


@pytest.mark.parametrize("line", ODD)
def test_an_odd_line_of_io_stat_costs_no_other(line: bytes) -> None:
    for data in (line + GOOD, GOOD + line):
        values, odd = parse_io_stat(data, everything)
        assert (values, len(odd)) == ((1, 2, 3, 4), 1)


@pytest.mark.parametrize(
    "line",
    [
        b"(unknown) rbytes=7 wbytes=7 rios=7 wios=7 dbytes=0 dios=0\n",
        b"252:0 \n",
        b"8:16 cost.vrate=100.00 use_delay=1 delay_nsec=0 depth=max\n",
        b"9:9 8:7 8:6\n",
    ],
)
def test_lines_of_io_stat_that_count_nothing(line: bytes) -> None:
    assert parse_io_stat(GOOD + line + GOOD, everything) == ((2, 4, 6, 8), [])


def test_a_line_of_io_stat_is_of_the_last_of_its_numbers() -> None:
    line = b"7:7 7:6 7:4 rbytes=10 wbytes=20 rios=30 wios=40 dbytes=0 depth=max\n"
    assert parse_io_stat(GOOD + line, everything).values == (11, 22, 33, 44)
    assert parse_io_stat(GOOD + line, lambda device: device == b"7:4").values == (10, 20, 30, 40)
    assert parse_io_stat(GOOD + line, lambda device: device == b"7:7").values == (0, 0, 0, 0)


@given(
    st.lists(st.tuples(st.sampled_from(["8:0", "259:1", "7:4"]), *[st.integers(0, 2**40)] * 4), max_size=5),
    st.lists(st.sampled_from([b"(unknown) rbytes=1 wbytes=1 rios=1 wios=1\n", b"1:1 \n", *ODD]), max_size=4),
    st.sampled_from([b"", b"252:0 ", b"252:0 rbytes=1 wby", b"252:0 rbytes=1 wbytes=1 rios=1 wios=1"]),
    st.randoms(use_true_random=False),
)
def test_io_stat_adds_up_its_good_lines(
    rows: list[tuple[str, int, int, int, int]], others: list[bytes], tail: bytes, chance: random.Random
) -> None:
    lines = [
        f"{device} rbytes={rb} wbytes={wb} rios={ri} wios={wi} dbytes=0 dios=0\n".encode()
        for device, rb, wb, ri, wi in rows
    ]
    mixed = [*lines, *others]
    chance.shuffle(mixed)
    values, odd = parse_io_stat(b"".join(mixed) + tail, everything)
    assert len(odd) == sum(line in ODD for line in others) + (b"=" in tail)
    sums = tuple(map(sum, zip((0, 0, 0, 0), *(row[1:] for row in rows), strict=True)))
    assert values == (sums if rows or not odd else (None, None, None, None))


@given(
    st.lists(
        st.tuples(st.sampled_from(["8:0", "259:1", "9:9"]), st.integers(0, 2**64), st.integers(0, 2**64)),
        max_size=5,
    ),
    st.booleans(),
)
def test_blkio_adds_up_its_good_lines(rows: list[tuple[str, int, int]], has_tail: bool) -> None:
    """9:9 is named by no sysfs."""
    text = "".join(f"{d} Read {r}\n{d} Write {w}\n{d} Total {r + w}\n" for d, r, w in rows)
    read = [r for d, r, _ in rows if d != "9:9" and r < 2**63]
    written = [w for d, _, w in rows if d != "9:9" and w < 2**63]
    tail = "8:0 Rea" if has_tail else "Total 0\n"
    values, odd = parse_blkio((text + tail).encode(), lambda device: None if device == b"9:9" else True)
    assert len(odd) == 2 * len(rows) - len(read) - len(written) + has_tail
    has_good = bool(read or written or not odd)
    bounded = [min(sum(some), 2**64 - 1) for some in (read, written)]
    assert values == (tuple(bounded) if has_good else (None, None))


def test_lines_of_a_device_that_sysfs_does_not_name_are_told() -> None:
    line = b"9:9 rbytes=1 wbytes=1 rios=1 wios=1\n"
    values, odd = parse_io_stat(GOOD + line, lambda device: None if device == b"9:9" else True)
    assert (values, len(odd)) == ((1, 2, 3, 4), 1)
    assert parse_io_stat(line, lambda _: None).values == (None,) * 4
    assert parse_io_stat(b"8:0 rbytes=%d wbytes=2 rios=3 wios=4\n" % 2**63, everything).values == (None,) * 4


def test_blkio() -> None:
    lines = b"8:0 Read 1\n8:0 Write 2\n8:0 Sync 3\n8:0 Async 0\n8:0 Discard 0\n8:0 Total 3\nTotal 3\n"
    assert parse_blkio(lines, everything) == ((1, 2), [])
    assert parse_blkio(b"Total 0\n", everything) == ((0, 0), [])
    assert parse_blkio(b"Total 0\n", everything, counts=False) == ((None, None), [])
    assert parse_blkio(lines, everything, counts=False) == ((1, 2), [])
    unknown = lines[:-8].replace(b"8:0", b"(unknown)")
    assert parse_blkio(unknown + lines, everything) == ((1, 2), [])


@pytest.mark.parametrize(
    "line", [b"8 Read 5\n", b"8:16 Read\n", b"8:16 Read x\n", b"\xff\n", b"8:16 Read %d\n" % 2**64]
)
def test_an_odd_line_of_blkio_costs_no_other(line: bytes) -> None:
    good = b"8:0 Read 1\n8:0 Write 2\n"
    values, odd = parse_blkio(good + line + b"Total 3\n", everything)
    assert (values, len(odd)) == ((1, 2), 1)


def test_a_torn_tail_of_blkio() -> None:
    lines = b"8:0 Read 100\n8:0 Write 200\n8:16 Read 3000\nTotal 3\n"
    for end in range(len(lines)):
        values, odd = parse_blkio(lines[:end], everything)
        whole = lines[: lines[:end].rfind(b"\n") + 1]
        is_unknown = whole == b"" and end > 0
        assert values == ((None, None) if is_unknown else parse_blkio(whole, everything).values)
        assert bool(odd) == (end > len(whole) and not lines[len(whole) : end].startswith(b"Total "))


def test_lines_not_understood_are_counted_and_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host(tmp_path, "v2")
    host.write("52/io.stat", "254:0 rbytes=5 wbytes=6 rios=7 wios=8\n254:1 rbytes=??\n")
    for _ in range(3):
        host.sample()
    assert [host.row("52")[name] for name in IO] == [5, 6, 7, 8]
    assert host.node()["values_not_understood"] == 1
    (record,) = caplog.records
    assert record.getMessage().endswith("job_52/io.stat: '254:1 rbytes=??'")


def test_arbitrary_bytes() -> None:
    chance = random.Random(11)
    parsers = (parse_cpu_stat, parse_cpuacct, parse_number)
    for _ in range(3000):
        data = bytes(
            chance.choice(b"0189: =\n-rbytesTotalusage_c\xff\0") for _ in range(chance.randint(0, 60))
        )
        for parse in (lambda d: parse_io_stat(d, everything), lambda d: parse_blkio(d, everything), *parsers):
            try:
                values, _ = parse(data)
            except NotUnderstoodError:
                continue
            assert all(value is None or 0 <= value < 2**64 for value in values)
