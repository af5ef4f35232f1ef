"""liblaggardtrace.so in real programs with known counts."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from laggard_agent.collectors.fntrace.table import CallTable
from tests.support.builders.fntrace import ROOT, SOURCES, Compiler, Traced, needs_gcc, run, sampled
from tests.support.processes import run_command, started

pytestmark = needs_gcc

Trace = Callable[..., Traced]


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    return Compiler(tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="module", params=["-O3", "-O0 -no-pie"])
def program(compiler: Compiler, request: pytest.FixtureRequest) -> Path:
    options = str(request.param).split()
    return compiler.build("traced.c", f"traced{options[0]}", *options)


@pytest.fixture
def traced(program: Path, tmp_path: Path) -> Traced:
    return Traced(program, tmp_path)


def test_counts_calls(traced: Traced) -> None:
    traced.trace("leaves", "1234")
    assert traced.calls() == {"leaves": 1, "leaf": 1234}


def test_names_program_image_and_function(traced: Traced) -> None:
    traced.trace("leaves", "1")
    name = traced.program.name
    assert set(sampled(traced.directory).sample().ids("fntrace")) == {
        f"{name}/{name}/leaves",
        f"{name}/{name}/leaf",
    }


def test_recursion(traced: Traced) -> None:
    traced.trace("fib", "15")
    assert traced.calls() == {"fib": 1973}


def test_functions_expanded_inline(traced: Traced) -> None:
    traced.trace("expanded")
    sums = traced.sums()
    assert (sums["expands"]["calls"], sums["expanded"]["calls"]) == (1, 10)
    assert sums["node"]["abandoned_frames"] == sums["node"]["unmatched_exits"] == 0


@pytest.mark.parametrize("clock", ["", "monotonic"])
def test_self_times_lie_between_what_the_program_measures(traced: Traced, clock: str) -> None:
    known = traced.trace("times", CLOCK=clock)
    sums = {name: row["self_ns"] or 0 for name, row in traced.sums().items() if name != "node"}
    for name, below, above in (
        ("inner", known["inner"], known["outer_all"] - known["outer"]),
        ("outer", known["outer"], known["outer_all"] - known["inner"]),
        ("down", known["down"], known["down_all"]),
    ):
        assert below * 0.999 <= sums[name] <= above * 1.001, name


def test_longjmp(traced: Traced) -> None:
    known = traced.trace("jumps", "4000")
    sums = traced.sums()
    assert sums["lands"]["calls"] == sums["leaf"]["calls"] == 4000
    assert sums["jumps"]["calls"] == 1000 * (1 + 2 + 3 + 4) + 4
    assert sums["node"]["abandoned_frames"] == sums["jumps"]["calls"]
    assert sums["node"]["deep_calls"] == sums["node"]["unmatched_exits"] == 0
    assert (sums["lands_and_burns"]["self_ns"] or 0) >= known["landed"] * 0.999


@pytest.mark.parametrize("how", ["signals", "signals-on-stack"])
def test_signals(traced: Traced, how: str) -> None:
    known = traced.trace(how, "1000")
    sums = traced.sums()
    assert {name: sums[name]["calls"] for name in known} == known
    assert sums["call_until"]["calls"] == 1
    assert sums["node"]["unmatched_exits"] == sums["node"]["deep_calls"] == 0
    assert sums["node"]["abandoned_frames"] == 0
    assert sums["node"]["untimed_calls"] != 0  # some came in the midst of an update


@pytest.mark.parametrize("how", ["signals-leave", "signals-leave-stack"])
def test_signal_handlers_that_never_return(traced: Traced, how: str) -> None:
    known = traced.trace(how, "500")
    sums = traced.sums()
    assert sums["in_handler"]["calls"] == known["in_handler"]
    # A signal may come after the program counted a call and before the call is made.
    assert known["leaf"] - 500 <= (sums["leaf"]["calls"] or 0) <= known["leaf"]
    assert sums["node"]["deep_calls"] == 0
    # What comes after is timed again: at most the handler's own call and the next one are not.
    assert (sums["node"]["untimed_calls"] or 0) <= 2 * 500


def test_threads_that_end_leave_their_counts_and_their_slots(traced: Traced) -> None:
    traced.trace("threads", "1000")
    assert traced.calls() == {"leaf": 40_000, "leaves": 40}
    table = CallTable(next(traced.directory.iterdir()))
    assert table.read()
    assert table.head is not None
    assert table.head.slots <= 8


def test_threads_at_the_same_time(traced: Traced) -> None:
    traced.trace("together", "10000")
    assert traced.calls() == {"leaf": 80_008, "leaves": 8}


def test_read_while_it_counts(traced: Traced) -> None:
    environment = {**os.environ, "LAGGARD_TRACE_DIR": str(traced.directory)}
    collector = sampled(traced.directory)
    leaf = f"{traced.program.name}/{traced.program.name}/leaf"
    seen = [0]
    with started([traced.program, "together", "1000000"], env=environment) as process:
        while process.poll() is None:
            if leaf in collector.sample().ids("fntrace"):
                seen.append(int(collector.row("fntrace", leaf)["calls"] or 0))
    seen.append(int(collector.sample().row("fntrace", leaf)["calls"] or 0))
    assert seen == sorted(seen)
    assert seen[-1] == 8_000_008
    assert len(set(seen)) > 3  # and it was seen on its way


def test_more_threads_than_slots(traced: Traced) -> None:
    traced.trace("together", "100", THREADS="3")
    sums = traced.sums()
    assert sums["leaf"]["calls"] == 3 * 101
    assert sums["node"]["threads_without_slot"] == 5


@pytest.mark.parametrize("how", ["fork", "raw-fork"])
def test_a_child_has_a_table_of_its_own(traced: Traced, how: str) -> None:
    traced.trace(how)
    assert len(list(traced.directory.iterdir())) == 3
    sums = traced.sums()
    assert (sums["leaf"]["calls"], sums["leaves"]["calls"], sums["forks"]["calls"]) == (100, 4, 1)
    assert sums["node"]["unmatched_exits"] == 0


def test_forks_while_other_threads_call(traced: Traced) -> None:
    traced.trace("fork-busy")
    assert len(list(traced.directory.iterdir())) == 21
    assert traced.calls() == {"leaf": 800_000 + 2_000, "leaves": 4 + 20}


def test_exec(traced: Traced) -> None:
    traced.trace("exec", "5")
    assert len(list(traced.directory.iterdir())) == 2
    assert traced.calls() == {"leaf": 12, "leaves": 2}


def test_exec_again_and_again(traced: Traced) -> None:
    environment = {**os.environ, "LAGGARD_TRACE_DIR": str(traced.directory)}
    collector = sampled(traced.directory)
    leaf = f"{traced.program.name}/{traced.program.name}/leaf"
    with started(
        [traced.program, "exec-again", "3"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for run_so_far in range(1, 5):
            assert process.stdout.readline() == b"ready\n"
            for _ in range(3):
                assert collector.sample().row("fntrace", leaf)["calls"] == 7 * run_so_far - 4
            assert len(list(traced.directory.iterdir())) == 1
            process.stdin.write(b"\n")


def test_a_child_of_vfork_makes_no_table_of_its_parents_memory(traced: Traced) -> None:
    pid = traced.trace("vfork", "5")["pid"]
    assert [path.name.partition(".")[0] for path in traced.directory.iterdir()] == [str(pid)]
    assert traced.calls() == {"leaf": 5, "leaves": 1}


def test_a_child_that_can_have_no_table_counts_nowhere(traced: Traced) -> None:
    environment = {**os.environ, "LAGGARD_TRACE_DIR": str(traced.directory)}
    done = run_command([traced.program, "fork-limited"], env=environment)
    assert "limited file size" in done.stderr
    assert traced.calls() == {"leaf": 50, "leaves": 2}


def test_a_thread_that_is_cancelled_leaves_no_lock(traced: Traced) -> None:
    traced.trace("cancel", "7")
    assert traced.calls() == {"leaf": 7, "leaves": 1, "f0": 1}


def test_calls_before_the_library_is_ready_do_not_keep_it_from_tracing(
    compiler: Compiler, tmp_path: Path
) -> None:
    early = compiler.folder / "libearly.so"
    program = compiler.folder / "preloaded"
    command = ["gcc", "-finstrument-functions"]
    run([*command, "-fPIC", "-shared", SOURCES / "early.c", "-o", early])
    link = ["-ldl", "-lpthread", "-Wl,--no-as-needed", str(early), f"-Wl,-rpath,{compiler.folder}"]
    run([*command, SOURCES / "traced.c", "-o", program, *link])
    preload = str(compiler.folder / "liblaggardtrace.so")
    run([program, "leaves", "5"], LAGGARD_TRACE_DIR=str(tmp_path), LD_PRELOAD=preload)
    assert Traced(program, tmp_path).calls() == {"leaf": 5, "leaves": 1}


def test_the_library_does_not_trace_itself(tmp_path: Path) -> None:
    run(["make", "-s", "-C", ROOT / "native", f"BUILD={tmp_path}", "CFLAGS=-O0 -finstrument-functions"])
    text = run(["nm", tmp_path / "liblaggardtrace.so"])
    assert " U __cyg_profile_func_enter" not in text
    begins = run(["objdump", "-d", tmp_path / "liblaggardtrace.so"])
    assert "call" in begins
    assert not re.search(r"call.*__cyg_profile_func_enter", begins)


def test_kill_9_leaves_the_last_counts_to_be_read_once(traced: Traced) -> None:
    environment = {**os.environ, "LAGGARD_TRACE_DIR": str(traced.directory)}
    with started(
        [traced.program, "wait", "77"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        collector = sampled(traced.directory)
        leaf = f"{traced.program.name}/{traced.program.name}/leaf"
        for _ in range(3):
            assert collector.sample().row("fntrace", leaf)["calls"] == 77
            assert len(list(traced.directory.iterdir())) == 1
        process.send_signal(signal.SIGKILL)
        process.wait()
    for ended, files in ((1, 1), (0, 0), (0, 0)):
        assert collector.sample().row("fntrace", leaf)["calls"] == 77
        assert collector.row("fntrace_node", "fntrace")["tables_ended"] == ended
        assert len(list(traced.directory.iterdir())) == files


def test_too_deep_a_stack_is_counted(traced: Traced) -> None:
    traced.trace("deep", "4999")
    sums = traced.sums()
    assert (sums["deep"]["calls"], sums["leaf"]["calls"]) == (5000, 1)
    assert sums["node"]["deep_calls"] == 5000 - 1024
    assert sums["node"]["abandoned_frames"] == sums["node"]["unmatched_exits"] == 0


def test_more_functions_than_places(traced: Traced) -> None:
    traced.trace("many", "3", FUNCTIONS="5")
    sums = traced.sums()
    node = sums.pop("node")
    assert {name: row["calls"] for name, row in sums.items()} == {f"f{i}": 3 for i in range(4)} | {
        "other": 18
    }
    assert node["functions_left_out"] == 6


def test_allow_list(traced: Traced, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.write_text("# what matters\n\n  lea?  # one letter\r\nf[0]\nf1*\n*b\n")
    for what, n in (("leaves", "10"), ("many", "2"), ("fib", "5"), ("jumps", "4")):
        traced.trace(what, n, ALLOW=str(allowed))
    assert traced.calls() == {"leaf": 10 + 4, "f1": 2, "fib": 15}


def test_an_allow_list_that_cannot_be_read_traces_nothing_and_says_so(traced: Traced, tmp_path: Path) -> None:
    environment = {"LAGGARD_TRACE_DIR": str(traced.directory), "LAGGARD_TRACE_ALLOW": str(tmp_path / "none")}
    done = run_command([traced.program, "leaves", "5"], env=environment)
    assert done.stderr == f"liblaggardtrace: {tmp_path}/none: cannot be read, or has no names; not traced\n"
    assert list(traced.directory.iterdir()) == []


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (lambda path: path.rmdir(), "no such directory"),
        (lambda path: path.chmod(0o777), "writable by all, and not sticky"),
        (
            lambda path: [(path / f"{i}.1.0").touch() for i in range(512)],
            "512 tables already, is there no agent?",
        ),
    ],
)
def test_a_directory_that_cannot_be_used(
    traced: Traced, tmp_path: Path, prepare: Callable[[Path], object], why: str
) -> None:
    directory = tmp_path / "tables"
    directory.mkdir()
    prepare(directory)
    done = run_command([traced.program, "together", "5"], env={"LAGGARD_TRACE_DIR": str(directory)})
    assert done.stderr == f"liblaggardtrace: {directory}: {why}; not traced\n"


@pytest.mark.parametrize("value", ["0", "1025", "many", "-1", ""])
def test_a_number_that_is_out_of_range_is_said(traced: Traced, value: str) -> None:
    environment = {"LAGGARD_TRACE_DIR": str(traced.directory), "LAGGARD_TRACE_THREADS": value}
    done = run_command([traced.program, "leaves", "5"], env=environment)
    assert done.stderr == "liblaggardtrace: LAGGARD_TRACE_THREADS: expected 1-1024, took 128\n"
    assert traced.calls() == {"leaf": 5, "leaves": 1}


def test_a_limit_on_file_sizes_is_kept_to(traced: Traced) -> None:
    command = ["sh", "-c", f"ulimit -f 100; exec {traced.program} leaves 5"]
    environment = {**os.environ, "LAGGARD_TRACE_DIR": str(traced.directory)}
    done = run_command(command, env=environment)
    assert "limited file size" in done.stderr
    assert list(traced.directory.iterdir()) == []


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="mounts a small tmpfs")
def test_a_full_file_system_stops_no_program(traced: Traced) -> None:
    mount = f"mount -t tmpfs -o size=1m,mode=1777 none {traced.directory}"
    command = ["unshare", "-m", "sh", "-c", f"{mount} && {traced.program} fib 5 && ls {traced.directory}"]
    environment = {**os.environ, "LAGGARD_TRACE_DIR": str(traced.directory)}
    done = run_command(command, env=environment)
    assert done.stderr == f"liblaggardtrace: {traced.directory}: no space left; not traced\n"
    assert done.stdout == ""


def test_images_that_are_opened_and_closed(compiler: Compiler, traced: Traced) -> None:
    images = [
        compiler.build("plugin.c", f"{who}.so", "-O2", "-fPIC", "-shared", f"-DWHO={who}")
        for who in ("a", "b")
    ]
    order = [*images, images[0], images[1]]
    addresses = run(
        [traced.program, "plugins", "50", *order], LAGGARD_TRACE_DIR=str(traced.directory)
    ).split()
    assert len(set(addresses)) < len(order)  # an address was used again
    name = traced.program.name
    now = sampled(traced.directory).sample()
    assert {id_: now.row("fntrace", id_)["calls"] for id_ in now.ids("fntrace")} == {
        f"{name}/a.so/inside_a": 100,
        f"{name}/b.so/inside_b": 100,
    }


def test_a_program_that_was_replaced_shows_addresses(traced: Traced, tmp_path: Path) -> None:
    copy = tmp_path / "bin" / "server"
    copy.parent.mkdir()
    directory = tmp_path / "tables"
    directory.mkdir()
    shutil.copy(traced.program, copy)
    replaced = Traced(copy, directory)
    replaced.trace("leaves", "3")
    moved = copy.rename(copy.with_name("was"))
    shutil.copy(moved, copy)  # the same build: another inode and the same build id
    assert replaced.calls() == {"leaf": 3, "leaves": 1}
    copy.write_bytes(b"")
    assert sorted(replaced.calls().values(), key=str) == [1, 3]
    assert all(name.startswith("0x") for name in replaced.calls())


def test_who_did_not_ask_for_it_hears_nothing(traced: Traced) -> None:
    assert run([traced.program, "leaves", "5"], LAGGARD_TRACE_DIR="") == ""


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_exceptions(compiler: Compiler, tmp_path: Path, level: str) -> None:
    traced = Traced(compiler.build("throws.cc", f"throws{level}", level, compiler="g++"), tmp_path)
    traced.trace()
    sums = traced.sums()
    assert {name: row["calls"] for name, row in sums.items() if name != "node"} == {
        "main": 1,
        "_ZL7catcheri": 4000,
        "_ZL7throweri": 1000 * (1 + 2 + 3 + 4),
    }
    assert sums["node"]["deep_calls"] == sums["node"]["unmatched_exits"] == 0


def test_the_library_exports_nothing_else(compiler: Compiler) -> None:
    text = run(["nm", "-D", "--defined-only", compiler.folder / "liblaggardtrace.so"])
    names = {line.split()[-1] for line in text.splitlines()}
    assert names == {"__cyg_profile_func_enter", "__cyg_profile_func_exit", "dlclose"}


def test_make_says_in_one_line_that_there_is_no_compiler(tmp_path: Path) -> None:
    make = shutil.which("make")
    assert make is not None
    command = [make, "-s", "-C", "native", f"BUILD={tmp_path}", "CC=no-such-compiler"]
    done = run_command(command, check=False, cwd=Path(__file__).parents[4])
    assert done.returncode != 0
    assert done.stderr.splitlines()[0] == (
        "make native: no-such-compiler not found; install it (Debian: apt-get install gcc libc6-dev)"
    )
