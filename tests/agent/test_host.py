from pathlib import Path

import psutil
import pytest

from laggard_agent.collectors.base import Reading
from laggard_agent.collectors.host import FIELDS, Host
from laggard_common.errors import CollectError
from tests.agent.made import tree

FILES = {
    "stat": """\
cpu  301854 612 111922 8979004 3552 2 3944 7 44 36
cpu0 301854 612 111922 8979004 3552 2 3944 7 44 36
intr 8885917 17 0 0
ctxt 38014093
btime 1418183276
processes 26442
softirq 5057579 250191 1481983
""",
    "meminfo": """\
MemTotal:       15666184 kB
MemFree:          440324 kB
MemAvailable:   12000000 kB
Buffers:         1020128 kB
Cached:         12007640 kB
Active:          6761276 kB
Inactive:        6532708 kB
Shmem:            165056 kB
Slab:             900000 kB
SReclaimable:     800000 kB
""",
    "loadavg": "0.21 0.37 1.39 1/719 19737\n",
}


@pytest.fixture(autouse=True)
def psutil_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "PROCFS_PATH", psutil.PROCFS_PATH)


def read(procfs: Path) -> Reading:
    (reading,) = Host(procfs, lambda: 9).read()
    return reading


def test_cpu_memory_and_load_of_the_given_tree(tmp_path: Path) -> None:
    reading = read(tree(tmp_path, FILES))
    assert [component.id for component in reading.components] == ["host"]
    row = dict(zip((field.name for field in FIELDS), reading.rows[0], strict=True))
    assert row["cpu_user_us"] == 3018540000
    assert row["cpu_iowait_us"] == 35520000
    assert row["cpu_steal_us"] == 70000
    assert row["ctx_switches"] == 38014093
    assert row["memory_total_bytes"] == 15666184 * 1024
    assert row["memory_available_bytes"] == 12000000 * 1024
    assert (row["load_1"], row["load_5"], row["load_15"]) == (0.21, 0.37, 1.39)
    assert reading.read_at_ns == 9


def test_the_agents_own_cost_is_in_it(tmp_path: Path) -> None:
    row = dict(zip((field.name for field in FIELDS), read(tree(tmp_path, FILES)).rows[0], strict=True))
    assert row["agent_cpu_us"]
    assert row["agent_resident_bytes"]
    assert row["agent_resident_bytes"] > 5_000_000


def test_two_roots_in_one_process(tmp_path: Path) -> None:
    one = tree(tmp_path / "1", FILES)
    two = tree(tmp_path / "2", {**FILES, "loadavg": "7 8 9 1/1 1\n"})
    hosts = [Host(one, lambda: 0), Host(two, lambda: 0)]
    loads = [next(host.read()).rows[0][17] for host in hosts * 2]
    assert loads == [0.21, 7.0, 0.21, 7.0]


def test_this_machine() -> None:
    assert len(read(Path("/proc")).rows[0]) == len(FIELDS)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("stat", ""),
        ("stat", "cpu x\n"),
        ("stat", "hello world\n"),
        ("meminfo", ""),
        ("meminfo", "MemTotal:\n"),
        ("meminfo", "MemTotal: x kB\n"),
        ("loadavg", ""),
        ("loadavg", "1 2\n"),
        ("loadavg", "a b c\n"),
    ],
)
def test_hostile_files(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(CollectError):
        read(tree(tmp_path, {**FILES, name: text}))


@pytest.mark.parametrize("name", FILES)
def test_missing_files_are_named(tmp_path: Path, name: str) -> None:
    tree(tmp_path, FILES)
    (tmp_path / name).unlink()
    with pytest.raises(CollectError) as caught:
        read(tmp_path)
    assert str(caught.value) == f"{tmp_path}/{name}: No such file or directory"
