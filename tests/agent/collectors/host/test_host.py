import time
from pathlib import Path

import psutil
import pytest

from laggard_agent.collectors.host.collector import FIELDS, Host, parse_loadavg, parse_meminfo, parse_stat
from laggard_agent.collectors.interface import Reading
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


def test_as_psutil_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's files, as they were at one moment."""
    for name in FILES:
        (tmp_path / name).write_bytes(Path("/proc", name).read_bytes())
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    cpu, events, memory = psutil.cpu_times(), psutil.cpu_stats(), psutil.virtual_memory()
    row = dict(zip((field.name for field in FIELDS), read(tmp_path).rows[0], strict=True))
    for name in ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"):
        assert row[f"cpu_{name}_us"] == round(getattr(cpu, name) * 1e6)
    for name in ("ctx_switches", "interrupts", "soft_interrupts"):
        assert row[name] == getattr(events, name)
    for name in ("total", "available", "free", "buffers", "cached", "shared"):
        assert row[f"memory_{name}_bytes"] == getattr(memory, name)


def test_what_is_read_in_parts_is_of_its_tick(tmp_path: Path) -> None:
    host = Host(tree(tmp_path, FILES), iter(range(100, 200)).__next__)
    before = time.process_time_ns() // 1000
    first = host.captures.take()
    tree(tmp_path, {"loadavg": "7 8 9 1/1 1\n"})
    second = host.captures.take()
    after = time.process_time_ns() // 1000
    readings = [reading for capture in (first, second) for reading in host.interpret(capture)]
    assert [reading.read_at_ns for reading in readings] == [100, 103]
    rows = [dict(zip((f.name for f in FIELDS), reading.rows[0], strict=True)) for reading in readings]
    assert [row["load_1"] for row in rows] == [0.21, 7.0]
    spent = [int(row["agent_cpu_us"] or 0) for row in rows]
    assert before <= spent[0] <= spent[1] <= after


def test_of_an_old_kernel_what_is_not_there_is_absent() -> None:
    assert parse_stat(b"cpu  1 2 3 4\n") == (10_000, 20_000, 30_000, 40_000, *[None] * 7)
    assert parse_stat(b"cpu  1 2 3 45") == parse_stat(b"cpu  1 2 3 45\n")
    assert parse_meminfo(b"MemTotal: 7 kB\nSReclaimable: 9 kB\n") == (7168, *[None] * 5)
    assert parse_meminfo(b"MemTotal: 7 kB\nCached: 9 kB\n") == (7168, None, None, None, 9216, None)


@pytest.mark.parametrize("name", FILES)
def test_cut_off_anywhere_it_is_read_or_refused(name: str) -> None:
    parse = {"stat": parse_stat, "meminfo": parse_meminfo, "loadavg": parse_loadavg}[name]
    text = FILES[name].encode()
    whole = len(parse(text))
    for end in range(len(text)):
        try:
            assert len(parse(text[:end])) == whole
        except ValueError:
            continue


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("stat", ""),
        ("stat", "cpu x\n"),
        ("stat", "hello world\n"),
        ("stat", "cpu 1 2 3 -4\n"),
        ("stat", "cpu 1 2 3 4\nctxt -5\n"),
        ("stat", f"cpu 1 2 3 {2**64 // 10_000 + 1}\n"),
        ("stat", f"cpu 1 2 3 4\nintr {2**64}\n"),
        ("stat", "cpu 1 2 3 4\nintr " + "9" * 100_000),
        ("meminfo", ""),
        ("meminfo", "MemTotal:\n"),
        ("meminfo", "MemTotal: x kB\n"),
        ("meminfo", "MemTotal: 12 MB\n"),
        ("meminfo", "MemTotal: 12\n"),
        ("meminfo", f"MemTotal: {2**54} kB\n"),
        ("meminfo", "MemTotal: 12 kB\nMemFree: -1 kB\n"),
        ("loadavg", ""),
        ("loadavg", "1 2\n"),
        ("loadavg", "a b c\n"),
        ("loadavg", "1 2 nan\n"),
        ("loadavg", "1 2 -3\n"),
    ],
)
def test_hostile_files(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(CollectError) as caught:
        read(tree(tmp_path, {**FILES, name: text}))
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_missing_files_are_named(tmp_path: Path, name: str) -> None:
    tree(tmp_path, FILES)
    (tmp_path / name).unlink()
    with pytest.raises(CollectError) as caught:
        read(tmp_path)
    assert str(caught.value) == f"{tmp_path}/{name}: No such file or directory"
