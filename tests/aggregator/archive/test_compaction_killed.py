"""kill -9 within compaction and retention: nothing is lost or doubled, and the next run finishes the work."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from laggard_aggregator.archive import layout, part_reader, retention
from laggard_aggregator.archive.reader import ArchiveReader
from tests.aggregator.archive.test_retention import DAY_NS, NOON_NS, write
from tests.support.builders.batches import SECOND
from tests.support.container import PROJECT
from tests.support.processes import started
from tests.support.thorough import times

STEPS = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir"})
"""Audit events of the steps that Laggard takes at the operating system; fsync and write are hooked apart."""
RANDOM_KILLS = times(40, 16)
FINISHED_EVERY = 4
"""Kills, after one of which the next compaction is run to its end."""


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hours of a past day in four parts of each kind."""
    directory = tmp_path_factory.mktemp("before")
    write(directory, [NOON_NS + minute * 60 * SECOND for minute in (0, 30, 60, 90)])
    return directory


def content(directory: Path) -> tuple[list[tuple[int, bytes]], list[int]]:
    """Every batch and close, in order."""
    reader = ArchiveReader(directory)
    batches = [(taken.lsn, taken.counters.values.tobytes()) for _, taken in reader.batches()]
    return batches, [close.lsn for _, close in reader.closes()]


@pytest.fixture(scope="module")
def ended() -> Iterator["Ended"]:
    """Runs one of WORK in a process of its own; its exit code, or the signal that ended it, negative.

    The processes are forked from one that has imported Arrow and run none of it, so that no lock is held by a
    thread which the child lacks.
    """
    code = f"from {__name__} import serve; serve()"
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with started(command, cwd=PROJECT, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        to, answers = server.stdin, server.stdout

        def run(work: str, directory: Path, value: float) -> tuple[int, float]:
            print(json.dumps([work, str(directory), value]), file=to, flush=True)
            code, cpu_seconds = json.loads(answers.readline())
            return int(code), float(cpu_seconds)

        yield run


def serve() -> None:
    """Forks a child for each line of standard input, and prints how it ended and its CPU time."""
    for line in sys.stdin:
        work, directory, value = json.loads(line)
        child = os.fork()
        if not child:
            try:
                WORK[work](Path(directory), value)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status, used = os.wait4(child, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime]), flush=True)


def compact(directory: Path, _: float = 0) -> None:
    """The work of all children."""
    retention.compact(directory, NOON_NS + DAY_NS)


def compact_until(directory: Path, steps: float) -> None:
    """Kills its process after `steps` steps."""
    left = steps

    def step(event: str, _: object = None) -> None:
        nonlocal left
        if event in STEPS:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    written, synced = layout._DigestedFile.write, os.fsync

    def half_written(file: layout._DigestedFile, data: Any) -> int:
        os.write(file.fileno(), bytes(data)[: len(data) // 2])
        step("open")
        os.lseek(file.fileno(), -(len(data) // 2), os.SEEK_CUR)
        return written(file, data)

    def sync(handle: Any) -> None:
        step("open")
        synced(handle)

    hooks = pytest.MonkeyPatch()
    hooks.setattr(layout._DigestedFile, "write", half_written)
    hooks.setattr(os, "fsync", sync)
    sys.addaudithook(step)
    compact(directory)


def compact_for(directory: Path, seconds: float) -> None:
    """Ends its process after `seconds` of CPU time, at once, as SIGKILL does."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    compact(directory)


WORK: Mapping[str, Callable[[Path, float], None]] = {
    "whole": compact,
    "steps": compact_until,
    "seconds": compact_for,
}

Ended = Callable[[str, Path, float], tuple[int, float]]


def assert_whole(directory: Path, expected: object, *, finish: bool = True) -> None:
    """A start reads it, no row is missing or twice; `finish`: the next compaction ends with one file each."""
    assert content(directory) == expected
    rows, day = part_reader.written(directory, NOON_NS)
    assert rows == {("counters", "diskstats"): 6, ("closes", "laggard"): 7}
    assert day == layout.day_of(NOON_NS)
    if not finish:
        return
    retention.compact(directory, NOON_NS + DAY_NS)
    assert content(directory) == expected
    left = [path for path in directory.rglob("*") if path.is_file()]
    assert len(left) == 1 + 1 + 1  # counters, closes, schemas
    for part in layout.all_parts(directory):
        layout.check(part)


def test_killed_at_every_step(before: Path, ended: Ended, tmp_path: Path) -> None:
    expected, killed = content(before), 0
    while True:
        directory = tmp_path / str(killed)
        shutil.copytree(before, directory)
        code, _ = ended("steps", directory, killed)
        assert_whole(directory, expected, finish=not code or killed % FINISHED_EVERY == 0)
        shutil.rmtree(directory)
        if not code:
            break
        assert code == -signal.SIGKILL
        killed += 1
    assert killed > 60


def test_killed_at_random_moments(before: Path, ended: Ended, tmp_path: Path) -> None:
    expected, chance, killed = content(before), random.Random(1), 0
    shutil.copytree(before, tmp_path / "timed")
    code, seconds = ended("whole", tmp_path / "timed", 0)
    assert code == 0
    for number in range(RANDOM_KILLS):
        directory = tmp_path / str(number)
        shutil.copytree(before, directory)
        killed += ended("seconds", directory, chance.uniform(1e-4, seconds))[0] == -signal.SIGPROF
        assert_whole(directory, expected, finish=number % FINISHED_EVERY == 0)
        shutil.rmtree(directory)
    assert killed > RANDOM_KILLS / 4
