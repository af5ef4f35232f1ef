import os
from pathlib import Path

import pytest

from laggard_agent.collectors.host.collector import FIELDS, Host, HostSettings
from laggard_agent.collectors.interface import Reading
from laggard_agent.sampling.sampler import collect
from laggard_common.errors import CollectError
from tests.support.builders.trees import tree
from tests.support.clock import FakeClock
from tests.support.sampled import surroundings

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
    (reading,) = Host(HostSettings(), surroundings(lambda: 9, procfs=procfs)).read()
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
    hosts = [Host(HostSettings(), surroundings(procfs=each)) for each in (one, two)]
    loads = [next(host.read()).rows[0][17] for host in hosts * 2]
    assert loads == [0.21, 7.0, 0.21, 7.0]


def test_as_the_kernel_counts(tmp_path: Path) -> None:
    """This machine's files, as they were at one moment."""
    text = {name: Path("/proc", name).read_text() for name in FILES}
    row = dict(zip((f.name for f in FIELDS), read(tree(tmp_path, text)).rows[0], strict=True))
    ticks = list(map(int, text["stat"].partition("\n")[0].split()[1:]))
    for name, spent in zip(
        ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"), ticks, strict=False
    ):
        assert row[f"cpu_{name}_us"] == spent * 1_000_000 // os.sysconf("SC_CLK_TCK")
    counted = {line.split()[0]: int(line.split()[1]) for line in text["stat"].splitlines()[1:]}
    for name, key in (("ctx_switches", "ctxt"), ("interrupts", "intr"), ("soft_interrupts", "softirq")):
        assert row[name] == counted[key]
    kib = {line.split()[0]: int(line.split()[1]) for line in text["meminfo"].splitlines()}
    for name, keys in (
        ("total", ["MemTotal:"]),
        ("available", ["MemAvailable:"]),
        ("free", ["MemFree:"]),
        ("buffers", ["Buffers:"]),
        ("cached", ["Cached:", "SReclaimable:"]),
        ("shared", ["Shmem:"]),
    ):
        assert row[f"memory_{name}_bytes"] == sum(kib[key] for key in keys) * 1024


@pytest.mark.parametrize("name", FILES)
def test_cut_off_anywhere_it_is_read_or_refused(tmp_path: Path, name: str) -> None:
    text = FILES[name]
    for end in range(len(text)):
        try:
            reading = read(tree(tmp_path, {**FILES, name: text[:end]}))
        except CollectError as exc:
            assert str(tmp_path / name) in str(exc)  # noqa: PT017
        else:
            assert len(reading.rows[0]) == len(FIELDS)


def test_memory_that_the_kernel_does_not_count_is_an_error_and_not_0(tmp_path: Path) -> None:
    text = FILES["meminfo"].replace("Buffers:", "Others:")
    with pytest.raises(CollectError, match="no Buffers in kB"):
        read(tree(tmp_path, {**FILES, "meminfo": text}))


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
def test_a_file_that_cannot_be_read_hides_no_other(tmp_path: Path, name: str) -> None:
    whole = read(tree(tmp_path, FILES)).rows[0]
    (tmp_path / name).unlink()
    collected = collect(Host(HostSettings(), surroundings(procfs=tmp_path)), FakeClock())
    assert collected.health.error == f"{tmp_path}/{name}: No such file or directory"
    row = collected.readings[0].rows[0]
    own = {"stat": slice(0, 11), "meminfo": slice(11, 17), "loadavg": slice(17, 20)}
    for file, place in own.items():
        assert list(row[place]) == ([None] * len(row[place]) if file == name else list(whole[place]))
    assert all(row[20:])


@pytest.mark.parametrize("name", FILES)
def test_missing_files_are_named(tmp_path: Path, name: str) -> None:
    tree(tmp_path, FILES)
    (tmp_path / name).unlink()
    with pytest.raises(CollectError) as caught:
        read(tmp_path)
    assert str(caught.value) == f"{tmp_path}/{name}: No such file or directory"
