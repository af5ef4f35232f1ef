"""The collector over tables made by hand: sums, ends of processes, states."""

import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from laggard_agent.collectors.fntrace import collector as fntrace
from laggard_agent.collectors.fntrace.collector import FntraceSettings
from laggard_agent.collectors.fntrace.program_totals import MOST_KNOWN, MOST_PROGRAMS, Totals
from laggard_agent.collectors.fntrace.symbolizer import CPU_NS_A_SAMPLE, IMAGES_A_SAMPLE, Namer
from laggard_agent.collectors.fntrace.table import CallTable
from laggard_agent.collectors.interface import Roots
from laggard_agent.settings import AgentSettings
from laggard_agent.tools.once import read_once
from laggard_agent.tools.support_dump import dump
from laggard_common.clock import SystemClock
from tests.support.builders.fntrace import Made, process_tree, sampled

OURS = 4026531836
MADE = Made(namespace=OURS)
FIRST, SECOND = "server/image/0x1000", "server/image/0x2000"


@pytest.fixture
def made(tmp_path: Path) -> Made:
    (tmp_path / "tables").mkdir()
    return MADE


def test_processes_of_one_program_count_together(tmp_path: Path, made: Made) -> None:
    tables, procfs = tmp_path / "tables", process_tree(tmp_path / "proc", {11: 1, 12: 1})
    for pid in (11, 12):
        replace(made, pid=pid, start=1).write(tables)
    replace(made, pid=13, start=1, program=b"another").write(tables)
    now = sampled(tables, procfs).sample()
    assert now.row("fntrace", FIRST) == {"calls": 10, "self_ns": 1000}
    assert now.row("fntrace", "another/image/0x1000") == {"calls": 5, "self_ns": 500}


def test_ticks_are_told_in_nanoseconds(tmp_path: Path, made: Made) -> None:
    replace(made, rate=2_500_000_000).write(tmp_path / "tables")
    assert sampled(tmp_path / "tables").sample().row("fntrace", FIRST) == {"calls": 5, "self_ns": 200}


@pytest.mark.parametrize("is_running", [True, False])
def test_names_that_wait_for_their_turn(tmp_path: Path, made: Made, is_running: bool) -> None:
    """What counted before the agent began is not told as if it had just happened."""
    count = IMAGES_A_SAMPLE + 2
    modules = [(i, b"", f"/no/{i}".encode()) for i in range(count)]
    functions = [(0, 0xFFFFFFFF), *((16, i) for i in range(count))]
    made = replace(made, modules=modules, functions=functions, capacities=(8, 8, 1))
    now = sampled(tmp_path / "tables")
    if not is_running:
        now.sample()
    for calls, told in ((100, (100, 0)), (103, (103, 3 if is_running else 103))):
        replace(made, slots=(((0, 0), *((calls, 0) for _ in range(count))),)).write(tmp_path / "tables")
        now.sample()
        rows = {id_: now.row("fntrace", id_)["calls"] for id_ in now.ids("fntrace")}
        assert rows == {
            f"server/{i}/0x10": told[i >= IMAGES_A_SAMPLE] for i in range(count) if told[i >= IMAGES_A_SAMPLE]
        }


def test_images_that_take_long_to_read_wait_for_time(tmp_path: Path, made: Made) -> None:
    took = iter(range(0, 10**12, 20 * CPU_NS_A_SAMPLE))
    namer = Namer(lambda: next(took))  # each image takes as much as 20 samples may
    modules = [(i, b"", f"/no/{i}".encode()) for i in range(3)]
    made = replace(made, modules=modules, functions=[(16, i) for i in range(3)], capacities=(8, 8, 1))
    table = CallTable(made.write(tmp_path / "tables"))
    table.read()
    named = []
    for _ in range(32):
        namer.start_sample()
        namer.name(table)
        named.append(sum(name is not None for name in table.names))
    assert named == [1] * 11 + [2] * 20 + [3]


def test_rows_that_do_not_change_stay_the_same_object(tmp_path: Path, made: Made) -> None:
    made.write(tmp_path / "tables")
    now = sampled(tmp_path / "tables").sample()
    before = now.readings["fntrace"]
    replace(made, slots=(((0, 0), (5, 500), (8, 701)),)).write(tmp_path / "tables")
    after = now.sample().readings["fntrace"]
    assert after.components is before.components
    assert after.rows[0] != before.rows[0]
    assert after.rows[1] is before.rows[1]


def test_the_end_of_a_process(tmp_path: Path, made: Made) -> None:
    tables, procfs = tmp_path / "tables", process_tree(tmp_path / "proc", {11: 1})
    path = replace(made, pid=11, start=1).write(tables)
    now = sampled(tables, procfs)
    for _ in range(3):
        assert now.sample().row("fntrace_node", "fntrace")["tables_ended"] == 0
    process_tree(procfs, {11: 2})  # the same number, another process
    replace(made, pid=11, start=1, slots=(((0, 0), (9, 900), (7, 700)),)).write(tables)
    assert now.sample().row("fntrace_node", "fntrace")["tables_ended"] == 1
    assert path.exists()
    assert not now.sample().row("fntrace_node", "fntrace")["tables"]
    assert not path.exists()
    replace(made, pid=11, start=2).write(tables)  # the other one counts from the beginning
    assert now.sample().row("fntrace", FIRST)["calls"] == 9 + 5


def test_a_read_alone_removes_nothing(tmp_path: Path, made: Made) -> None:
    path = made.write(tmp_path / "tables")
    sampled(tmp_path / "tables", process_tree(tmp_path / "proc", {})).sample()
    assert path.exists()


@pytest.mark.parametrize("namespace", [0, OURS + 1])
def test_of_processes_in_containers_nobody_knows_the_end(tmp_path: Path, made: Made, namespace: int) -> None:
    path = replace(made, namespace=namespace).write(tmp_path / "tables")
    now = sampled(tmp_path / "tables", process_tree(tmp_path / "proc", {}))
    for _ in range(4):
        now.sample()
    assert path.exists()


def test_a_process_that_proc_hides_has_not_ended(tmp_path: Path, made: Made) -> None:
    pid = os.getpid()
    path = replace(made, pid=pid).write(tmp_path / "tables")
    now = sampled(tmp_path / "tables", process_tree(tmp_path / "proc", {}))
    for _ in range(4):
        now.sample()
    assert path.exists()


def test_a_table_from_before_an_exec_has_ended(tmp_path: Path, made: Made) -> None:
    tables, procfs = tmp_path / "tables", process_tree(tmp_path / "proc", {11: 1})
    paths = [replace(made, pid=11, start=1).write(tables, number) for number in (0, 1)]
    now = sampled(tables, procfs)
    for _ in range(4):
        assert now.sample().row("fntrace", FIRST)["calls"] == 10
    assert [path.exists() for path in paths] == [False, True]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_another_users_file_does_not_end_a_process(tmp_path: Path, made: Made) -> None:
    tables, procfs = tmp_path / "tables", process_tree(tmp_path / "proc", {11: 1})
    paths = [replace(made, pid=11, start=1).write(tables, number) for number in (0, 1)]
    os.chown(paths[1], 65534, -1)
    now = sampled(tables, procfs)
    for _ in range(4):
        now.sample()
    assert [path.exists() for path in paths] == [True, True]


def test_a_table_that_was_never_finished_goes_after_a_minute(tmp_path: Path, made: Made) -> None:
    path = made.write(tmp_path / "tables", complete=0)
    now = sampled(tmp_path / "tables", process_tree(tmp_path / "proc", {}))
    os.utime(path, ns=(now.clock.wall, now.clock.wall))
    for _ in range(3):
        now.sample(10)
    assert path.exists()
    for _ in range(3):
        now.sample(30)
    assert not path.exists()


def test_one_bad_table_is_said_and_the_others_go_on(tmp_path: Path, made: Made) -> None:
    tables = tmp_path / "tables"
    made.write(tables)
    bad = replace(made, pid=5).write(tables, version=9)
    now = sampled(tables).sample()
    assert now.error == f"{bad}: layout 9, this agent reads 1"
    assert now.row("fntrace", FIRST)["calls"] == 5
    assert now.row("fntrace_node", "fntrace")["tables_failed"] == 1


def test_a_link_is_not_followed(tmp_path: Path, made: Made) -> None:
    path = made.write(tmp_path / "tables")
    (tmp_path / "link").symlink_to("tables")
    now = sampled(tmp_path / "link", process_tree(tmp_path / "proc", {}))
    for _ in range(3):
        assert now.sample().error == f"{tmp_path}/link: is a link"
    assert path.exists()


def test_other_files_are_left_alone(tmp_path: Path, made: Made) -> None:
    tables = tmp_path / "tables"
    made.write(tables)
    strangers = [tables / name for name in ("README", "1.2", "0.1.0", "x.1.0", "1.1.0.bak", "1.1.1234567890")]
    for stranger in strangers:
        stranger.write_bytes(b"")
    now = sampled(tables, process_tree(tmp_path / "proc", {}))
    for _ in range(4):
        assert now.sample(100).error == ""
    assert all(stranger.exists() for stranger in strangers)


def test_nothing_found_is_said_once(tmp_path: Path, made: Made, caplog: pytest.LogCaptureFixture) -> None:
    now = sampled(tmp_path / "none")
    for _ in range(3):
        assert now.sample().row("fntrace_node", "fntrace")["tables"] == 0
    assert [record.getMessage() for record in caplog.records] == [
        f"collector fntrace: nothing found in {tmp_path}/none"
    ]


def test_names_that_are_hostile(tmp_path: Path, made: Made) -> None:
    image = b"/a/" + b"\xff\x01\n" * 100
    replace(made, program=b"a/../b\n" + b"\xe2\x80\xae" * 30, modules=((1, b"", image),)).write(
        tmp_path / "tables"
    )
    for id_ in sampled(tmp_path / "tables").sample().ids("fntrace"):
        assert id_.isprintable()
        assert id_.count("/") == 2
        assert len(id_) <= 256


def test_no_more_tables_than_can_be_read(tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fntrace, "_MOST_TABLES", 2)
    tables = tmp_path / "tables"
    for pid in (21, 22):
        replace(made, pid=pid).write(tables)
    now = sampled(tables).sample()
    replace(made, pid=20).write(tables)  # those that are known stay: none counts twice
    assert now.sample().error == f"{tables}: more than 2 tables"
    assert now.row("fntrace", FIRST)["calls"] == 10


def test_tables_that_say_they_are_full_take_no_more_memory_than_there_is(tmp_path: Path, made: Made) -> None:
    tables = tmp_path / "tables"
    functions = 32768
    full = replace(made, capacities=(1, functions, 15), functions=[], slots=[])
    for pid in range(20, 26):
        path = replace(full, pid=pid).write(tables, functions=functions, slots=15)
        assert path.stat().st_size > 7_000_000
    replace(made, pid=9, program=b"before").write(tables)
    now = sampled(tables).sample()
    assert now.error.endswith("all tables together take more than 67108864 bytes (and 3 more)")
    assert now.row("fntrace_node", "fntrace")["tables"] == 3
    replace(made, pid=8, program=b"after").write(tables)  # what is small still finds its place
    assert now.sample().row("fntrace_node", "fntrace")["tables"] == 4


def test_a_dump_reads_as_the_node_did(tmp_path: Path, made: Made) -> None:
    tables = tmp_path / "tables"
    made.write(tables)
    settings = AgentSettings(collectors=("fntrace",), tables={"fntrace": FntraceSettings(directory=tables)})
    folder = tmp_path / "dump"
    dump(settings, Roots(), SystemClock(), folder)
    copied = AgentSettings(
        collectors=("fntrace",),
        tables={"fntrace": FntraceSettings(directory=folder / "files" / str(tables)[1:])},
    )
    lines = io.StringIO()
    assert read_once(copied, Roots(procfs=folder / "proc", sysfs=None), SystemClock(), lines) == {}
    counters = {row["component"]: row["counters"] for row in map(json.loads, lines.getvalue().splitlines())}
    assert counters[FIRST] == {"calls": 5, "self_ns": 500}
    assert counters["fntrace"]["tables"] == 1


class TestTotals:
    def test_the_busiest_get_the_rows(self) -> None:
        totals = Totals(2)
        totals.add({"p/i/a": (1, 10), "p/i/b": (1, 30), "p/i/c": (9, 20), "q/i/d": (2, 5)})
        assert rows(totals) == {"p/i/b": (1, 30), "p/i/c": (9, 20), "p/other": (1, 10), "q/other": (2, 5)}
        assert totals.without_row == 2

    def test_a_busier_function_takes_a_row_and_nothing_ever_falls(self) -> None:
        totals = Totals(1)
        totals.add({"p/i/a": (1, 100)})
        before = rows(totals)
        for round_ in range(12):
            who = "p/i/b" if 3 <= round_ < 8 else "p/i/a"
            totals.add({who: (1, 100)})
            totals.rank()
            after = rows(totals)
            assert all(after[id_] >= row for id_, row in before.items() if id_ in after)
            before = rows(totals) | {id_: row for id_, row in before.items() if id_ not in after}
            assert sum(row[0] for row in before.values()) == round_ + 2
        assert set(before) == {"p/i/a", "p/i/b", "p/other"}

    def test_a_little_busier_is_not_enough(self) -> None:
        totals = Totals(1)
        totals.add({"p/i/a": (1, 100)})
        for _ in range(20):
            totals.add({"p/i/a": (1, 100), "p/i/b": (1, 150)})
            totals.rank()
        assert set(rows(totals)) == {"p/i/a", "p/other"}

    def test_what_is_remembered_is_bounded(self) -> None:
        totals = Totals(10)
        totals.add({f"p{i}/i/f": (1, 1) for i in range(MOST_KNOWN + 50)})
        assert len(totals.components) == 10 + MOST_PROGRAMS + 1
        assert sum(row[0] for row in totals.rows()) == MOST_KNOWN + 50
        assert totals.components[-1].id == "[others]/other"

    def test_counters_stop_before_they_wrap(self) -> None:
        totals = Totals(1)
        for _ in range(5):
            totals.add({"p/i/a": (2**62, 2**62)})
        assert rows(totals) == {"p/i/a": (2**63 - 1, 2**63 - 1)}


def rows(totals: Totals) -> dict[str, tuple[int, int]]:
    return dict(zip((component.id for component in totals.components), totals.rows(), strict=True))
