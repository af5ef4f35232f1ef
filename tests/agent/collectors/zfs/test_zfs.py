"""The collector `zfs` over files in OpenZFS's formats, whole, cut off, and with what ZFS never writes."""

import contextlib
import os
import random
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from laggard_agent.collectors.report_file import MOST_SECONDS
from laggard_agent.collectors.zfs.collector import Zfs, ZfsSettings
from laggard_agent.collectors.zfs.kstat import NotKstatError, parse_dataset, parse_io, parse_tx_assign
from laggard_agent.collectors.zfs.report import parse_report
from tests.support.sampled import Sampled, surroundings

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "zfs"
OLD, NEW, REPORT = FIXTURES / "kstat-0.8", FIXTURES / "kstat-2.4", FIXTURES / "report.txt"


def sampled(folder: Path, **settings: Any) -> Sampled[Zfs]:
    chosen = ZfsSettings(report=folder / "report.txt", **settings)
    return Sampled(lambda now, ns: Zfs(chosen, surroundings(now, ns, procfs=folder)))


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A /proc with a pool of each of two releases, and a report."""
    root = tmp_path / "spl" / "kstat" / "zfs"
    shutil.copytree(OLD, root)
    shutil.copytree(NEW, root, dirs_exist_ok=True)
    shutil.copy(REPORT, tmp_path)
    return tmp_path


def fresh(agent: Sampled[Zfs], folder: Path) -> Sampled[Zfs]:
    """The agent, whose report was written now."""
    now = agent.clock.wall_ns()
    os.utime(folder / "report.txt", ns=(now, now))
    return agent


def test_pools_and_datasets_by_hand(server: Path) -> None:
    agent = sampled(server).sample()
    assert agent.error == ""
    assert agent.ids("zfs_pool") == ["ost7", "tank"]
    tank, ost7 = agent.row("zfs_pool", "tank"), agent.row("zfs_pool", "ost7")
    assert (tank["reads"], tank["writes"], tank["read_bytes"]) == (22113401, 13244771, 884736016384)
    assert (tank["queue_us"], tank["disk_us"]) == (10411226800, 9041122680)
    assert (tank["not_online"], ost7["not_online"]) == (0, 1)
    assert (ost7["reads"], ost7["queue_us"]) == (None, None)
    assert agent.ids("zfs_dataset") == ["ost7/ost0007", "tank/home dirs", "tank"]
    assert agent.row("zfs_dataset", "tank/home dirs") == {
        "reads": 29614153,
        "writes": 718760,
        "read_bytes": 616619157258,
        "written_bytes": 7745788975,
        "unlinks": 77194,
    }


@pytest.mark.parametrize("path", ["kstat-0.8/tank/dmu_tx_assign", "kstat-2.4/ost7/dmu_tx_assign"])
def test_every_transaction_is_in_the_bin_of_its_time(path: str) -> None:
    data = (FIXTURES / path).read_bytes()
    bins: Counter[int] = Counter()
    for nanoseconds, count in re.findall(r"^(\d+) ns +4 +(\d+)$", data.decode(), re.MULTILINE):
        bound = 1
        while bound * 1048576 < int(nanoseconds):
            bound *= 2
        bins[min(bound, 131072)] += int(count)
    counts, odd = parse_tx_assign(data)
    assert odd == 0
    assert {name: value for name, value in counts.items() if value} == {
        f"tx_assign_ms_{bound}": count for bound, count in bins.items() if count
    }
    assert len(bins) > 8


def test_every_number_of_the_kstats_is_that_of_its_text(server: Path) -> None:
    """Pools and datasets; a transaction's bins are another test's."""
    agent = sampled(server).sample()
    datasets = {}
    for path in FIXTURES.glob("kstat-*/*/objset-*"):
        text = path.read_text()
        counts = {name: int(value) for name, value in re.findall(r"^(\w+) +4 +(\d+)$", text, re.MULTILINE)}
        row = {"unlinks": "nunlinks", "read_bytes": "nread", "written_bytes": "nwritten"}
        row |= {"reads": "reads", "writes": "writes"}
        name = re.findall(r"^dataset_name +7 +(.+)$", text, re.MULTILINE)[0]
        datasets[name] = {field: counts[key] for field, key in row.items()}
    assert {name: agent.row("zfs_dataset", name) for name in agent.ids("zfs_dataset")} == datasets
    _, heading, values = (OLD / "tank/io").read_text().splitlines()
    io = dict(zip(heading.split(), map(int, values.split()), strict=True))
    wanted: dict[str, dict[str, int | None]] = {
        "tank": {
            "reads": io["reads"],
            "writes": io["writes"],
            "read_bytes": io["nread"],
            "written_bytes": io["nwritten"],
            "queue_us": io["wlentime"] // 1000,
            "disk_us": io["rlentime"] // 1000,
            "not_online": int((OLD / "tank/state").read_text() != "ONLINE\n"),
        }
    }
    wanted["ost7"] = dict.fromkeys(wanted["tank"])
    wanted["ost7"]["not_online"] = int((NEW / "ost7/state").read_text() != "ONLINE\n")
    told = {name: agent.row("zfs_pool", name) for name in agent.ids("zfs_pool")}
    assert {
        name: {field: value for field, value in row.items() if not field.startswith("tx_assign")}
        for name, row in told.items()
    } == wanted


def test_every_number_of_the_report_is_that_of_its_text(server: Path) -> None:
    """Each line by itself with regular expressions; `le` is the lower bound of a bucket."""
    wanted: dict[str, Counter[str]] = {}
    for line in REPORT.read_text().splitlines():
        path = re.search(r",path=((?:\\.|[^,])+),", line)
        match = re.match(r"zpool_(stats|latency),(?:le=([^,]+),)?", line)
        if match is None or path is None:
            continue
        device = re.sub(r"\\(.)", r"\1", path[1]).rpartition("/")[2]
        row = wanted.setdefault(f"ost7/{device}", Counter())
        numbers = {name: int(value) for name, value in re.findall(r"[ ,](\w+)=(\d+)u", line)}
        if match[1] == "stats":
            row.update(reads=numbers["read_ops"], writes=numbers["write_ops"])
            row.update(read_bytes=numbers["read_bytes"], written_bytes=numbers["write_bytes"])
            row.update({name: numbers[name] for name in ("read_errors", "write_errors", "checksum_errors")})
            row["not_online"] = int(",state=ONLINE," not in line)
            continue
        bound = 1
        while match[2] == "+Inf" or bound * 1.048576e-3 < 1.5 * float(match[2]):
            bound *= 2
            if bound == 131072:
                break
        for name in ("disk_read", "disk_write", "total_read", "total_write"):
            row[f"{name}_ms_{bound}"] += numbers[name]
    agent = fresh(sampled(server), server).sample(0)
    assert agent.error == ""
    told = {name: agent.row("zfs_vdev", name) for name in agent.ids("zfs_vdev")}
    assert len(wanted) == 9
    assert told == {name: dict(row) for name, row in wanted.items()}
    states: dict[str, dict[str, int | None]] = {}
    for line in REPORT.read_text().splitlines():
        if len(words := line.split("\t")) == 3 and words[2] != "-":
            state = states.setdefault(f"ost7/{words[0]}", {"slow_ios": None, "sits_out": None})
            key = "slow_ios" if words[1] == "slow_ios" else "sits_out"
            state[key] = int({"on": "1", "off": "0"}.get(words[2], words[2]))
    told = {name: agent.row("zfs_vdev_state", name) for name in agent.ids("zfs_vdev_state")}
    assert told == states


def test_devices_their_pool_and_what_they_are_part_of(server: Path) -> None:
    agent = fresh(sampled(server), server).sample(0)
    told = {one.id: dict(one.labels) for one in agent.readings["zfs_vdev"].components}
    assert told["ost7/E1D3-part1"] == {"pool": "ost7", "vdev": "raidz-1"}
    assert "ost7/scsi odd,name=1" in told
    assert agent.row("zfs_vdev", "ost7/E0D3-part1")["not_online"] == 1
    assert agent.row("zfs_vdev", "ost7/E0D2-part1")["not_online"] == 0
    assert agent.row("zfs_vdev_state", "ost7/E0D2") == {"slow_ios": 5, "sits_out": 1}
    assert agent.row("zfs_vdev_state", "ost7/raidz2-0") == {"slow_ios": 0, "sits_out": None}
    own = agent.row("zfs", "zfs")
    assert [own[name] for name in ("pools", "datasets", "vdevs", "report_age")] == [2, 3, 9, 0]
    assert (own["values_not_understood"], own["left_out"]) == (0, 0)


def test_no_zfs_an_old_report_and_limits(server: Path, tmp_path: Path) -> None:
    nothing = sampled(tmp_path / "nowhere").sample()
    assert (nothing.error, list(nothing.readings)) == ("", ["zfs"])
    agent = fresh(sampled(server, max_datasets=1, max_vdevs=2), server).sample(0)
    assert (len(agent.ids("zfs_dataset")), len(agent.ids("zfs_vdev"))) == (1, 2)
    assert agent.row("zfs", "zfs")["left_out"] == 1 + 7
    agent.sample(MOST_SECONDS + 1)
    assert "zfs_vdev" not in agent.readings
    assert agent.row("zfs", "zfs")["report_age"] == MOST_SECONDS + 1


def test_odd_content_is_counted_and_costs_no_other(server: Path) -> None:
    root = server / "spl/kstat/zfs"
    (root / "tank/io").write_text("12 3 0x00 1 80 1 2\nnread nwritten reads writes\n1 2 x 4\n")
    (root / "ost7/objset-0x183").write_text("dataset_name 7 ost7\n")
    (root / "ost7/state").unlink()
    with (server / "report.txt").open("a") as report:
        report.write("zpool_latency,le=fast,name=a,path=/dev/a,vdev=root/disk-0 total_read=1u 1\n")
        report.write("zpool_stats,name=a state\nsda\tslow_ios\tmany\n")
    agent = fresh(sampled(server), server).sample(0)
    assert agent.error == ""
    assert agent.row("zfs", "zfs")["values_not_understood"] == 5
    assert agent.row("zfs_pool", "tank")["reads"] is None
    assert agent.row("zfs_pool", "ost7")["not_online"] is None
    assert len(agent.ids("zfs_vdev")) == 10


@pytest.mark.parametrize(
    "name", ["kstat-0.8/tank/io", "kstat-2.4/ost7/dmu_tx_assign", "kstat-0.8/tank/objset-0x102"]
)
def test_kstats_cut_off_anywhere(name: str) -> None:
    data = (FIXTURES / name).read_bytes()
    parse = parse_io if name.endswith("io") else parse_dataset if "objset" in name else parse_tx_assign
    for end in range(len(data)):
        with contextlib.suppress(NotKstatError):
            told = parse(data[:end])
            assert told == parse(data[: data.rindex(b"\n", 0, end) + 1])  # no half of a number


def test_a_report_cut_off_anywhere_says_no_other_number() -> None:
    data = REPORT.read_bytes()
    whole = parse_report(data)
    for end in random.Random(1).sample(range(len(data)), 60):
        part = parse_report(data[:end])
        assert part.odd == []
        for name, (component, row) in part.vdevs.items():
            assert whole.vdevs[name][0] == component
            assert all(
                value <= (whole.vdevs[name][1][key] or 0) for key, value in row.items() if value is not None
            )
