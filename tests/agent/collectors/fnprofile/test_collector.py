"""The collector over real perf events, where this user may have them, and where the kernel refuses."""

import errno
import gc
import logging
import os
import select
import shutil
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pytest

from laggard_agent.collectors.fnprofile import perf, symbolizer
from laggard_agent.collectors.fnprofile.collector import (
    FIRST_SECONDS,
    SAMPLER_FIELDS,
    Fnprofile,
    FnprofileSettings,
)
from laggard_agent.collectors.fnprofile.cpu_sampler import CpuSampler, online_cpus
from laggard_agent.collectors.interface import Reading
from laggard_common.errors import CollectError
from tests.support.builders.fnprofile import process, resolver
from tests.support.clock import FakeClock
from tests.support.processes import run_command, started
from tests.support.sampled import surroundings
from tests.support.wait import LIMIT_SECONDS, wait_until

PROGRAM = """
#include <stdlib.h>
static volatile unsigned long sink;
__attribute__((noinline)) void hot(void) { for (int i = 0; i < 300000; i++) sink += i; }
__attribute__((noinline)) void warm(void) { for (int i = 0; i < 100000; i++) sink += i; }
int main(void) { for (;;) { hot(); warm(); } }
"""
SETTINGS = FnprofileSettings(event="cpu-clock")


def permitted() -> bool:
    """Whether this user may sample all CPUs here."""
    try:
        os.close(perf.open_event(perf.clock_event(997), 0))
    except OSError:
        return False
    return True


pytestmark = pytest.mark.root
needs_perf = pytest.mark.skipif(not permitted(), reason="needs perf events of all processes (CAP_PERFMON)")


@contextmanager
def collector(
    clock: FakeClock,
    settings: FnprofileSettings = SETTINGS,
    *,
    procfs: Path = Path("/proc"),
    sysfs: Path | None = Path("/sys"),
    open_event: perf.Open = perf.open_event,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Fnprofile]:
    """One that ends its sampling."""
    around = surroundings(clock.wall_ns, clock.monotonic_ns, procfs=procfs, sysfs=sysfs)
    made = Fnprofile(settings, around, open_event=open_event, pause=pause)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def time_for_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else runs on this machine has its symbols read, too."""
    monkeypatch.setattr(symbolizer, "_BURST_CPU_NS", 60 * 10**9)


def open_files() -> set[str]:
    """The file descriptors of this process, but for that of this very look."""
    numbers = (entry.name for entry in Path("/proc/self/fd").iterdir())
    return {number for number in numbers if Path(f"/proc/self/fd/{number}").exists()}


def cpu_ns(pid: int) -> int:
    """The CPU time of a process."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def has_spent(pid: int, goal_ns: int) -> bool:
    """Whether the CPU time of a process has got so far."""
    return cpu_ns(pid) >= goal_ns


def samples(reading: Reading) -> dict[str, int]:
    """Samples by function."""
    pairs = zip(reading.components, reading.rows, strict=True)
    return {component.id: int(row[0] or 0) for component, row in pairs}


def sampler_row(reading: Reading) -> dict[str, int]:
    """The sampler's own row, by field."""
    assert reading.source == "fnprofile_sampler"
    return {f.name: int(v or 0) for f, v in zip(SAMPLER_FIELDS, reading.rows[0], strict=True)}


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A process of the program `burner`, that burns CPU, three quarters of it in `hot`."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    folder = tmp_path_factory.mktemp("busy")
    (folder / "burner.c").write_text(PROGRAM)
    run_command(["gcc", "-O1", "-o", folder / "burner", folder / "burner.c"])
    with started([folder / "burner"]) as running:
        yield running.pid


@needs_perf
def test_a_busy_program(busy: int) -> None:
    """Its hot function is the top of it, in the proportion that it has; and it adds up to its CPU time."""
    spent = 0

    def burn(_: float) -> None:
        nonlocal spent
        started = cpu_ns(busy)
        wait_until(partial(has_spent, busy, started + 400_000_000))
        spent = cpu_ns(busy) - started

    with collector(FakeClock(), pause=burn) as made:
        functions, own = made.read()
    assert functions.source == "fnprofile"
    found = samples(functions)
    of_program = {name: n for name, n in found.items() if name.startswith("burner/")}
    hot, warm = of_program["burner/burner/hot"], of_program["burner/burner/warm"]
    assert max(of_program, key=of_program.__getitem__) == "burner/burner/hot"
    assert 0.6 < hot / (hot + warm) < 0.9
    assert hot + warm > 0.8 * sum(of_program.values())
    cpu_of = dict(zip(found, (int(row[1] or 0) for row in functions.rows), strict=True))
    row = sampler_row(own)
    lost_ns = row["lost"] * row["sample_cpu_ns"]  # on a machine with much else to do
    assert sum(cpu_of[name] for name in of_program) + lost_ns > 0.8 * spent
    assert row["samples"] == sum(found.values())
    assert (row["garbled_bytes"], row["frequency"]) == (0, 997)
    assert row["cpus"] == len(online_cpus(Path("/sys")))
    assert row["functions"] == len(found)


@needs_perf
@pytest.mark.usefixtures("busy")
def test_vectors_come_when_they_are_due() -> None:
    """In between, a reading says the same, in the same objects; what was sampled is not lost."""
    clock = FakeClock(wall=1_700_000_001 * 10**9)
    with collector(clock) as made:
        first, own = made.read()
        clock.sleep(8.9)
        second, own_too = made.read()
        assert all(a is b for a, b in zip(second.rows, first.rows, strict=True))
        assert second.components is first.components
        assert own_too.rows[0] is own.rows[0]
        clock.sleep(0.2)
        third, _ = made.read()
        assert third.read_at_ns == clock.wall
        assert sum(samples(third).values()) > sum(samples(first).values())


@needs_perf
def test_a_program_that_ends_before_anyone_looks(tmp_path: Path) -> None:
    """What it was and ran is known from what the kernel told while it ran."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    (tmp_path / "p.c").write_text(PROGRAM.replace("for (;;)", "for (int i = 0; i < 100; i++)"))
    run_command(["gcc", "-O1", "-o", tmp_path / "shortlived", tmp_path / "p.c"])
    clock = FakeClock()

    def run(_: float) -> None:
        run_command([tmp_path / "shortlived"])

    with collector(clock, pause=run) as made:
        functions, _ = made.read()
    assert samples(functions)["shortlived/shortlived/hot"] >= 4


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A control group of its own for perf events, not made yet; what is in it at the end goes back up."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    roots = [Path(m[1]) for m in mounts if m[2] == "cgroup2" or (m[2] == "cgroup" and "perf_event" in m[3])]
    if not roots or not os.access(roots[0], os.W_OK):
        pytest.skip("needs root, and control groups for perf events")
    made = roots[0] / f"laggard-test-{os.getpid()}"
    yield made
    if made.exists():
        leave(made)


def leave(group: Path) -> None:
    """Removes a control group, and has its processes go on in the one above."""
    for pid in (group / "cgroup.procs").read_text().split():
        (group.parent / "cgroup.procs").write_text(pid)
    group.rmdir()


@needs_perf
def test_a_control_group_alone(busy: int, cgroup: Path) -> None:
    """Nothing else is seen; a group that comes later, and one that comes again, is found."""
    clock = FakeClock()
    settings = FnprofileSettings(event="cpu-clock", cgroup=str(cgroup))
    with collector(clock, settings) as made:
        for _ in range(2):
            with pytest.raises(CollectError, match=f"^{cgroup}: No such file or directory$"):
                list(made.read())
            clock.sleep(11)
            cgroup.mkdir()
            _, own = made.read()
            assert sampler_row(own)["samples"] == 0
            (cgroup / "cgroup.procs").write_text(str(busy))
            goal = cpu_ns(busy) + 100_000_000
            wait_until(partial(has_spent, busy, goal))
            clock.sleep(61)
            functions, own = made.read()
            found = samples(functions)
            assert found.get("burner/burner/hot", 0) > 20, found
            assert found.pop("[others]/other") < 4  # as little as a row of its own takes
            assert {name.split("/")[0] for name in found} == {"burner"}
            leave(cgroup)
            clock.sleep(11)


@needs_perf
def test_a_folder_that_is_no_control_group(tmp_path: Path) -> None:
    before = open_files()
    settings = FnprofileSettings(event="cpu-clock", cgroup=str(tmp_path))
    with (
        collector(FakeClock(), settings) as made,
        pytest.raises(CollectError, match=f"^{tmp_path}: no control group of perf events$"),
    ):
        list(made.read())
    assert open_files() <= before


@needs_perf
def test_cpus_come_and_go(tmp_path: Path) -> None:
    online = tmp_path / "devices/system/cpu/online"
    online.parent.mkdir(parents=True)
    online.write_text("0\n")
    sampler = CpuSampler(
        perf.clock_event(97), perf.open_event, Path("/proc"), tmp_path, resolver(tmp_path / "proc")
    )
    sampler.start()
    try:
        assert sampler.drain().cpus == 1
        online.write_text(f"0-{len(online_cpus(Path('/sys')))}\n")  # one more than there is
        sampler.drain()
        assert sampler.drain().cpus == len(online_cpus(Path("/sys")))
        online.write_text("0\n")
        sampler.drain()
        assert sampler.drain().cpus == 1
    finally:
        sampler.stop()


def take_until_the_end(sampler: CpuSampler) -> None:
    """It may answer once more before it sees that it should end."""
    sampler.drain()
    sampler.drain()


class _Watched:
    """select.poll that tells of each sleep whether a question ended it, and how long it was meant to be."""

    def __init__(self, inner: select.poll, question: int) -> None:
        self._inner = inner
        self._question = question
        self.sleeps: SimpleQueue[tuple[bool, int]] = SimpleQueue()

    def register(self, fd: int, events: int) -> None:
        """As of select.poll."""
        self._inner.register(fd, events)

    def unregister(self, fd: int) -> None:
        """As of select.poll."""
        self._inner.unregister(fd)

    def poll(self, timeout_ms: int) -> list[tuple[int, int]]:
        """As of select.poll, but for 50 ms where it would be longer."""
        ready = self._inner.poll(min(timeout_ms, 50))
        self.sleeps.put((self._question in dict(ready), timeout_ms))
        return ready


@needs_perf
def test_it_sleeps_when_nobody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Woken without a question, it looks once and sleeps again. Full ring buffers may wake it, too."""
    sampler = CpuSampler(
        perf.clock_event(1), perf.open_event, Path("/proc"), Path("/sys"), resolver(tmp_path)
    )
    watched = _Watched(sampler._poll, sampler._asked)
    monkeypatch.setattr(sampler, "_poll", watched)
    sampler.start()
    try:
        sampler.drain()
        while not watched.sleeps.empty():
            watched.sleeps.get()
        sampler._wake()
        after = [watched.sleeps.get(timeout=LIMIT_SECONDS) for _ in range(5)]
        assert sum(woken for woken, _ in after) <= 1
        assert {meant_ms for _, meant_ms in after} == {1000}
    finally:
        sampler.stop(5.0)


class _AlwaysFull:
    """Stands for ring buffers that are half full whenever someone looks."""

    def register(self, fd: int, events: int) -> None:
        """As of select.poll."""

    def unregister(self, fd: int) -> None:
        """As of select.poll."""

    def poll(self, timeout_ms: int) -> list[tuple[int, int]]:
        """At once."""
        return []


@needs_perf
def test_however_much_there_is_to_read_it_takes_a_fifth_of_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = resolver(tmp_path)
    began: list[float] = []

    def work() -> None:
        began.append(time.monotonic())
        end_ns = time.thread_time_ns() + 20_000_000
        while time.thread_time_ns() < end_ns:
            pass

    monkeypatch.setattr(made, "earn", work)
    sampler = CpuSampler(perf.clock_event(1), perf.open_event, Path("/proc"), Path("/sys"), made)
    monkeypatch.setattr(sampler, "_poll", _AlwaysFull())
    sampler.start()
    try:
        wait_until(lambda: len(began) > 5)
        assert began[5] - began[0] >= 5 * 0.1
    finally:
        sampler.stop(5.0)


@needs_perf
def test_after_the_end_nothing_is_open(tmp_path: Path) -> None:
    before = open_files()
    sampler = CpuSampler(
        perf.clock_event(97), perf.open_event, Path("/proc"), Path("/sys"), resolver(tmp_path)
    )
    sampler.start()
    sampler.drain()
    assert len(open_files()) > len(before)
    sampler.stop()
    with pytest.raises(CollectError, match="sampling was stopped"):
        take_until_the_end(sampler)
    assert open_files() <= before


@needs_perf
def test_of_sampling_that_ended_nothing_is_kept() -> None:
    with collector(FakeClock(), pause=lambda _: None) as made:
        list(made.read())
        assert made._sampler is not None
        before = weakref.ref(made._sampler)
        made.close()
        list(made.read())
        gc.collect()
        assert before() is None


@needs_perf
def test_a_bug_ends_it_and_it_begins_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    with collector(clock, pause=lambda _: None) as made:
        list(made.read())

        def broken(data: bytes) -> object:
            raise RuntimeError("a bug")

        with monkeypatch.context() as patched:
            patched.setattr("laggard_agent.collectors.fnprofile.cpu_sampler.parse", broken)
            clock.sleep(10)
            with pytest.raises(CollectError, match="sampling ended: RuntimeError: a bug"):
                list(made.read())
        clock.sleep(10)
        functions, _ = made.read()
        assert functions.source == "fnprofile"
    assert any("sampling ended" in r.getMessage() for r in caplog.records)


@needs_perf
def test_samples_that_do_not_come_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clear state and no rows; they are there the next time."""
    with collector(FakeClock(), pause=lambda _: None) as made, monkeypatch.context() as patched:
        patched.setattr("laggard_agent.collectors.fnprofile.cpu_sampler._ANSWER_WITHIN_SECONDS", 0.0)
        readings = made.read()
        with pytest.raises(CollectError, match="the samples were not read in time"):
            next(readings)
        patched.undo()
        assert [reading.source for reading in made.read()] == ["fnprofile", "fnprofile_sampler"]


def refused(number: int) -> perf.Open:
    """A kernel that says no."""

    def open_event(event: perf.PerfEvent, cpu: int) -> int:
        raise OSError(number, os.strerror(number))

    return open_event


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (
            errno.EACCES,
            "not permitted: needs CAP_PERFMON (before Linux 5.8 CAP_SYS_ADMIN), or kernel.perf_event_paranoid"
            " below 1 (it is 4)",
        ),
        (errno.ENOSYS, "this kernel has no perf events"),
        (errno.EMFILE, "too many open files: one is needed for each CPU"),
        (errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_refused(number: int, reason: str, tmp_path: Path) -> None:
    """One clear state, tried again after a while; nothing stays open."""
    level = tmp_path / "sys/kernel/perf_event_paranoid"
    level.parent.mkdir(parents=True)
    level.write_text("4\n")
    before = open_files()
    clock, asked = FakeClock(), []

    def open_event(event: perf.PerfEvent, cpu: int) -> int:
        asked.append(cpu)
        return refused(number)(event, cpu)

    with collector(clock, procfs=tmp_path, open_event=open_event) as made:
        for _ in range(3):
            with pytest.raises(CollectError) as caught:
                list(made.read())
            assert str(caught.value) == f"perf_event_open: {reason}"
        assert asked == [0]
        clock.sleep(11)
        with pytest.raises(CollectError):
            list(made.read())
        assert asked == [0, 0]
    assert open_files() <= before


def test_refused_by_this_kernel() -> None:
    """To a user without the capability, for real."""
    level = Path("/proc/sys/kernel/perf_event_paranoid").read_text().strip()
    if os.geteuid() != 0 or int(level) < 1:
        pytest.skip("needs root, and a kernel that asks for CAP_PERFMON")
    with collector(FakeClock()) as made:
        os.seteuid(65534)
        try:
            with pytest.raises(CollectError, match=f"not permitted: needs CAP_PERFMON .*it is {level}"):
                list(made.read())
        finally:
            os.seteuid(0)


def event_of(
    tmp_path: Path, settings: FnprofileSettings, khz: str | None, number: int | None
) -> perf.PerfEvent:
    """What is sampled on a machine whose CPU says this and whose kernel opens cycles or does not."""
    opened: list[perf.PerfEvent] = []
    folder = tmp_path / "devices/system/cpu/cpu0/cpufreq"
    folder.mkdir(parents=True)
    if khz is not None:
        (folder / "cpuinfo_max_freq").write_text(khz)

    def open_event(event: perf.PerfEvent, cpu: int) -> int:
        if event.name == "cycles" and number is not None:
            raise OSError(number, os.strerror(number))
        if opened:
            raise OSError(errno.ENOMEM, "enough seen")
        opened.append(event)
        return os.open(os.devnull, os.O_RDONLY)

    with collector(FakeClock(), settings, sysfs=tmp_path, open_event=open_event) as made:
        with pytest.raises(CollectError) as caught:
            list(made.read())
        if not opened:
            raise caught.value
    return opened[0]


def test_cycles_where_there_are_any(tmp_path: Path) -> None:
    event = event_of(tmp_path, FnprofileSettings(), "2500000\n", None)
    assert (event.name, event.period, event.cpu_ns) == ("cycles", 2_507_523, 1_003_009)


@pytest.mark.parametrize(
    ("khz", "number"), [("2500000\n", errno.ENOENT), (None, None), ("x", None), ("0", None)]
)
def test_else_the_cpu_clock(tmp_path: Path, khz: str | None, number: int | None) -> None:
    event = event_of(tmp_path, FnprofileSettings(), khz, number)
    assert (event.name, event.period, event.cpu_ns) == ("cpu-clock", 1_003_009, 1_003_009)


@pytest.mark.parametrize(
    ("khz", "number", "reason"),
    [
        ("2500000\n", errno.ENOENT, "this machine does not count cycles: use the event cpu-clock"),
        (None, None, "the frequency of the CPU is not known: use the event cpu-clock"),
        ("2500000\n", errno.EACCES, "not permitted: needs CAP_PERFMON"),
    ],
)
def test_cycles_that_cannot_be_had(tmp_path: Path, khz: str | None, number: int | None, reason: str) -> None:
    with pytest.raises(CollectError, match=reason):
        event_of(tmp_path, FnprofileSettings(event="cycles"), khz, number)


def test_trees_of_another_node(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), collector(FakeClock(), sysfs=None, open_event=refused(1)) as made:
        assert list(made.read()) == list(made.read()) == []
    assert [r.getMessage() for r in caplog.records] == [
        "collector fnprofile: nothing found: the trees are of another node"
    ]


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8\n", [0, 1, 2, 3, 8]),
        ("5\n", [5]),
        ("", [0]),
        ("x-y", [0]),
        ("3-1", [0]),
        ("0-99999999999", list(range(8192))),
    ],
)
def test_online_cpus(tmp_path: Path, text: str, cpus: list[int]) -> None:
    (tmp_path / "devices/system/cpu").mkdir(parents=True)
    (tmp_path / "devices/system/cpu/online").write_text(text)
    assert online_cpus(tmp_path) == cpus


def test_how_much_a_ring_buffer_holds() -> None:
    """8 s and more, a power of two of pages, and no more than a user may lock a CPU."""
    sizes = {hz: perf.ring_bytes(perf.clock_event(hz)) for hz in (1, 99, 997, 4000, 10_000)}
    assert sizes == {1: 64 << 10, 99: 64 << 10, 997: 256 << 10, 4000: 512 << 10, 10_000: 512 << 10}


def test_the_first_reading_takes_its_time_once(tmp_path: Path) -> None:
    if not permitted():
        pytest.skip("needs perf events of all processes (CAP_PERFMON)")
    process(tmp_path, 1, "x")
    pauses: list[float] = []
    with collector(FakeClock(), procfs=tmp_path, pause=pauses.append) as made:
        list(made.read())
        list(made.read())
    assert pauses == [FIRST_SECONDS]
