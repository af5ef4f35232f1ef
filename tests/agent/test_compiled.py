"""liblaggardcapture.so and its twin in Python: the same ticks, captures and state, whatever happens."""

import ctypes
import logging
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_agent import compiled
from laggard_agent.collectors.capture import Capture, Captures
from laggard_agent.collectors.interface import Reading
from laggard_agent.compiled import Came, Compiled, System, Taken
from laggard_agent.sampling.timeline import Timeline
from laggard_common.clock import SystemClock
from tests.agent.made import FIELDS, FakeClock, components, tree
from tests.agent.sampling.test_sampler import INTERVAL_NS, Good, Sampled

ROOT = Path(__file__).resolve().parents[2]
MS = 1_000_000
BATCH_TICKS = 5
COMPONENTS = components("x")

pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None or shutil.which("make") is None, reason="gcc or make is not installed"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("native")
    subprocess.run(
        ["make", "-s", "-C", ROOT / "native", f"BUILD={folder}", f"{folder}/liblaggardcapture.so"], check=True
    )
    found = compiled.library(folder / "liblaggardcapture.so")
    assert found is not None
    return found


# -- the twins, in a world whose time is made up


@dataclass
class World:
    """A clock, and what happens when: the wall clock is set, a file changes, waking is late or early."""

    folder: Path
    events: deque[tuple[int, str, int]]
    end_ns: int
    clock: FakeClock = field(default_factory=FakeClock)

    def wait(self, ns: int) -> bool:
        """Sleeps; True when this is the end."""
        began = self.clock.monotonic
        until = began + ns
        while self.events and self.events[0][0] <= until:
            at, what, value = self.events.popleft()
            if what == "late":
                until += value * MS
            elif what == "early":
                until = at
            elif what == "step":
                self.clock.wall += value * MS
            elif value < 0:
                (self.folder / what).unlink(missing_ok=True)
            else:
                tree(self.folder, {what: f"{at}\n" * value})
        self.clock.monotonic += until - began
        self.clock.wall += until - began
        return self.clock.monotonic >= self.end_ns

    def system(self) -> System:
        """This for the library."""
        return System(
            System.MONOTONIC_NS(self.clock.monotonic_ns),
            System.WALL_NS(self.clock.wall_ns),
            System.WAIT(lambda _, ns: self.wait(ns)),
        )


class Run:
    """What was taken of two files until the world's end, as a sampler does it."""

    def __init__(self, world: World, library: ctypes.CDLL | None, buffer_bytes: int = 4096) -> None:
        tree(world.folder, {"a": "1\n", "b": "1\n2\n"})
        self.timeline = Timeline(world.clock, 100 * MS)
        self.taken: deque[Taken] = deque()
        self.missed = 0
        self.by_library = 0
        captures = Captures([world.folder / "a", world.folder / "b"], self.timeline.now_ns)
        system = world.system()
        made = library and Compiled(
            library, captures, self.timeline.state, buffer_bytes=buffer_bytes, system=system
        )
        while True:
            if made is not None and made.can_take():
                had = len(self.taken)
                came = made.take(self.timeline.state.next_ns + BATCH_TICKS * 100 * MS)
                made.fetch(self.taken)
                self.by_library += len(self.taken) - had
                if came is Came.STOPPED:
                    return
                if came is Came.ENDED:
                    continue
            if world.wait(round(self.timeline.wait_seconds() * 1e9)):
                return
            tick = self.timeline.take()
            if tick is not None:
                self.missed += tick.missed
                self.taken.append(Taken(tick.time_ns, 0, captures.take()))

    def facts(self) -> object:
        state = self.timeline.state
        taken = [
            (tick, took, capture.can_wait, capture.size_bytes, list(map(str, capture.files)))
            for tick, took, capture in self.taken
        ]
        return taken, self.missed, self.timeline.steps, state.next_ns, state.offset_ns, state.corrected_ns


def both(
    folder: Path, events: Sequence[tuple[int, str, int]], library: ctypes.CDLL, buffer_bytes: int = 4096
) -> tuple[Run, Run]:
    """The run of each twin through the same events, given as milliseconds, what, value."""
    runs = []
    for made in (None, library):
        clock = FakeClock()
        began = clock.monotonic
        due = deque(sorted((began + at * MS, what, value) for at, what, value in events))
        runs.append(Run(World(folder, due, began + 6000 * MS, clock), made, buffer_bytes))
    return runs[0], runs[1]


WHEN = st.integers(0, 6000)
LATE = st.tuples(WHEN, st.just("late"), st.integers(1, 400))
EARLY = st.tuples(WHEN, st.just("early"), st.just(0))
STEP = st.tuples(WHEN, st.just("step"), st.one_of(st.integers(-3, 3), st.integers(-70_000, 70_000)))
FILE = st.tuples(WHEN, st.sampled_from("ab"), st.integers(-1, 60))
# Who wakes early while the timeline is slewed follows the wall clock then, or at the tick.
EVENTS = st.one_of(
    st.lists(st.one_of(LATE, STEP, FILE), max_size=12), st.lists(st.one_of(LATE, EARLY, FILE), max_size=12)
)


@settings(deadline=None)
@given(events=EVENTS, buffer_bytes=st.sampled_from([8, 200, 1000, 4096]))
def test_the_twins_agree(
    tmp_path_factory: pytest.TempPathFactory,
    library: ctypes.CDLL,
    events: list[tuple[int, str, int]],
    buffer_bytes: int,
) -> None:
    in_python, by_library = both(tmp_path_factory.mktemp("files"), events, library, buffer_bytes)
    assert by_library.facts() == in_python.facts()


def test_ordinary_ticks_are_the_librarys(tmp_path: Path, library: ctypes.CDLL) -> None:
    in_python, by_library = both(tmp_path, [], library)
    assert by_library.facts() == in_python.facts()
    assert len(by_library.taken) == 59
    assert by_library.by_library == 58  # all but the first, which opens the files


@pytest.mark.parametrize(
    ("event", "left"),
    [
        ((1050, "a", 5), 0),  # lines came: it returns at once, but takes the tick
        ((1050, "a", -1), 49),  # gone for good
        ((1050, "late", 120), 1),
        ((1050, "late", 1), 0),
        ((5950, "early", 0), 0),
        ((1050, "step", 5000), 1),
        ((1050, "step", -1), 0),
        ((1050, "a", 3000), 49),  # more than there is room for
    ],
)
def test_what_is_left_to_the_interpreter(
    tmp_path: Path, library: ctypes.CDLL, event: tuple[int, str, int], left: int
) -> None:
    in_python, by_library = both(tmp_path, [event], library)
    assert by_library.facts() == in_python.facts()
    assert len(by_library.taken) - by_library.by_library == 1 + left


def test_files_of_the_kernel_stay_open_and_are_read_anew(library: ctypes.CDLL) -> None:
    clock = FakeClock()
    timeline = Timeline(clock, 100 * MS)
    world = World(Path("/nowhere"), deque(), clock.monotonic + 1000 * MS, clock)
    captures = Captures([Path("/proc/self/stat"), Path("/proc/zoneinfo")], timeline.now_ns, measures_cpu=True)
    made = Compiled(library, captures, timeline.state, system=world.system())
    assert not made.can_take()
    captures.take()
    taken: deque[Taken] = deque()
    assert made.take(timeline.state.next_ns + 1000 * MS) is Came.STOPPED
    made.fetch(taken)
    assert len(taken) == 9
    for _, _, capture in taken:
        assert capture.files[0].data.split()[0] == str(os.getpid()).encode()
        assert len(capture.files[1].data) > 4096  # more than the kernel gives at once
        assert capture.files[1].data.endswith(b"\n")
        assert 0 < capture.cpu_ns <= time.process_time_ns()


@pytest.mark.parametrize("sizes", [(10, 20), (1, 7), (300, 500), (900, 900)])
def test_no_byte_too_much(tmp_path: Path, sizes: tuple[int, int]) -> None:
    program = tmp_path / "driver"
    checks = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    sources = [ROOT / "tests/fixtures/capture/driver.c", ROOT / "native/capture.c"]
    subprocess.run(["gcc", "-D_GNU_SOURCE", *checks, *sources, "-o", program], check=True)
    paths = [tmp_path / name for name in "ab"]
    for path, size in zip(paths, sizes, strict=True):
        path.write_bytes(b"\n".rjust(size, b"x"))
    done = subprocess.run([program, *paths], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    # A tick takes its head, the heads of the files, their bytes, and padding; to read needs a byte more.
    held = 32 + 2 * 16 + sum(sizes)
    takes = (held + 7) // 8 * 8
    needs = max(takes, held + 1)
    ticks = [0 if size < needs else min(3, 1 + (size - needs) // takes) for size in range(2049)]
    assert list(map(int, done.stdout.split())) == [ticks.count(n) for n in range(4)]


# -- in a sampler, in real time


class Lines(Good):
    """Tells what a file said; `taken_here` are the ticks that were not the library's."""

    def __init__(self, path: Path) -> None:
        super().__init__("lines")
        self.told: list[bytes] = []
        self.taken_here = 0
        outer = self

        class Counted(Captures):
            def take(self) -> Capture:
                outer.taken_here += 1
                return super().take()

        self.captures = Counted([path], time.time_ns)

    def interpret(self, capture: Capture) -> Iterator[Reading]:
        (file,) = capture.files
        text = file.text()
        yield Reading(self.name, FIELDS, file.at_ns, COMPONENTS, [(1, 2)])
        self.told.append(text)


def ended(sampled: Sampled) -> None:
    sampled.end()
    assert not any(thread.name == "collect-lines" for thread in threading.enumerate())
    assert not sampled.failures


def test_batches_are_as_ever(tmp_path: Path, library: ctypes.CDLL) -> None:
    lines = Lines(tree(tmp_path, {"x": "1\n"}) / "x")
    sampled = Sampled(lines, ticks=5, library=library)
    sampled.until(lambda: len(sampled.batches) >= 4 and lines.taken_here < len(lines.told))
    ended(sampled)
    sampled.sampler.flush()
    ticks = [batch.t0_ns + i * INTERVAL_NS for batch in sampled.batches for i in range(batch.n)]
    assert ticks == sorted(set(ticks))
    assert len(ticks) == len(lines.told)
    left_out = (ticks[-1] - ticks[0]) // INTERVAL_NS + 1 - len(ticks)
    assert left_out <= sampled.sampler.missed_ticks  # which counts those before the first, too
    assert all(batch.n == 5 for batch in sampled.batches[1:3]) or sampled.sampler.missed_ticks
    assert sampled.sampler.works()


def test_what_comes_or_fails_is_told_at_once(tmp_path: Path, library: ctypes.CDLL) -> None:
    lines = Lines(tree(tmp_path, {"x": "1\n"}) / "x")
    sampled = Sampled(lines, ticks=3600, library=library)
    sampler = sampled.sampler
    sampled.until(lambda: sampled.changes == 1)
    tree(tmp_path, {"new": "1\n2\n"})
    (tmp_path / "new").rename(tmp_path / "x")
    until(lambda: b"1\n2\n" in lines.told)
    (tmp_path / "x").unlink()
    sampled.until(lambda: sampled.changes == 2)
    assert sampler.health is not None
    assert sampler.health.error == f"{tmp_path}/x: No such file or directory"
    tree(tmp_path, {"x": "3\n"})
    sampled.until(lambda: sampled.changes == 3)
    assert sampler.health.success
    ended(sampled)


def test_a_reading_that_stalls_holds_back_nothing_that_was_read(tmp_path: Path, library: ctypes.CDLL) -> None:
    lines = Lines(tree(tmp_path, {"x": "1\n"}) / "x")
    ahead = FakeClock(monotonic=time.monotonic_ns() + 11 * 10**9)
    sampled = Sampled(lines, clock=ahead, ticks=3600, library=library)
    sampler = sampled.sampler
    sampled.until(lambda: sampled.changes == 1)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "same").hardlink_to(tmp_path / "fifo")
    (tmp_path / "fifo").rename(tmp_path / "x")  # to open it takes until somebody else does

    def is_delivered() -> bool:
        sampler.watch(sampler.timeline.now_ns() + 4000 * INTERVAL_NS)
        return len(sampled.batches) > 0 and sampler.health is not None and not sampler.health.success

    until(is_delivered)
    assert sampler.works()  # that is a matter of `watch`
    tree(tmp_path, {"new": "2\n"})
    (tmp_path / "new").rename(tmp_path / "x")
    (tmp_path / "same").open("w").close()
    sampled.until(lambda: bool(sampler.health and sampler.health.success))
    ended(sampled)
    sampler.watch(sampler.timeline.now_ns())
    assert sampler.health is not None
    assert sampler.health.success  # it does not read any more


def until(fulfilled: Callable[[], bool]) -> None:
    """Asks again and again."""
    give_up = time.monotonic() + 10
    while not fulfilled():
        assert time.monotonic() < give_up
        time.sleep(0.001)


# -- waiting


RESTART_SYSCALL = {"x86_64": "219", "aarch64": "128"}
WAITING = """
import sys
from pathlib import Path
from laggard_agent import compiled
from laggard_agent.collectors.capture import Captures
from laggard_agent.sampling.timeline import Timeline
from laggard_common.clock import SystemClock

timeline = Timeline(SystemClock(), 10**18)
captures = Captures([Path("/proc/self/stat")], timeline.now_ns)
captures.take()
made = compiled.Compiled(compiled.library(Path(sys.argv[1])), captures, timeline.state)
print("ready", flush=True)
made.take(0)
"""


@pytest.mark.skipif(platform.machine() not in RESTART_SYSCALL, reason="the call's number is not known")
def test_a_process_that_was_stopped_keeps_to_the_time_of_its_tick(library: ctypes.CDLL) -> None:
    """The kernel goes on with the time that it was given; other calls begin anew with what was left."""
    command = [sys.executable, "-c", WAITING, library._name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as waiting:
        proc = Path("/proc", str(waiting.pid))

        def is_in(state: str) -> bool:
            return (proc / "stat").read_text().rpartition(") ")[2].startswith(state)

        try:
            assert waiting.stdout is not None
            assert waiting.stdout.readline() == b"ready\n"
            until(lambda: is_in("S"))
            waiting.send_signal(signal.SIGSTOP)
            until(lambda: is_in("T"))
            waiting.send_signal(signal.SIGCONT)
            until(lambda: is_in("S"))
            assert (proc / "syscall").read_text().split()[0] == RESTART_SYSCALL[platform.machine()]
        finally:
            waiting.kill()


def test_it_stops_at_once_and_for_good(library: ctypes.CDLL) -> None:
    timeline = Timeline(SystemClock(), 10**18)
    captures = Captures([Path("/proc/self/stat")], timeline.now_ns)
    captures.take()
    made = Compiled(library, captures, timeline.state)
    came: list[Came] = []
    thread = threading.Thread(target=lambda: came.append(made.take(0)))
    thread.start()
    made.stop()
    thread.join(10)
    assert [*came, made.take(0)] == [Came.STOPPED] * 2


# -- where it is not there


@pytest.mark.parametrize("content", [None, b"", b"no library"])
def test_without_it_the_interpreter_does_its_work(
    tmp_path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "liblaggardcapture.so"
    if content is not None:
        path.write_bytes(content)
    caplog.set_level(logging.INFO)
    assert compiled.library(path) is compiled.library(path) is None
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert ("not installed" in record.message) == (content is None)


def test_another_version_is_not_used(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "other.so").symlink_to(library._name)
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(compiled, "_LAYOUT", 0)
    assert compiled.library(tmp_path / "other.so") is None
    assert "of another version (2, not 0)" in caplog.text
