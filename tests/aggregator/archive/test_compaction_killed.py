"""kill -9 within compaction and retention: nothing is lost or doubled, and the next run finishes the work."""

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from laggard_aggregator.archive import layout, part_reader, retention
from laggard_aggregator.archive.reader import ArchiveReader
from tests.aggregator.archive.test_retention import DAY_NS, NOON_NS, write
from tests.support.builders.batches import SECOND

STEPS = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir"})
"""Audit events of the steps that Laggard takes at the operating system; fsync and write are hooked apart."""
RANDOM_KILLS = 120

Killer = Callable[[], None]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hours of a past day in six parts of each kind, and half a merge that was killed before."""
    directory = tmp_path_factory.mktemp("before")
    write(directory, [NOON_NS + minute * 60 * SECOND for minute in (0, 20, 40, 60, 80, 100)])
    return directory


def content(directory: Path) -> tuple[list[tuple[int, bytes]], list[int]]:
    """Every batch and close, in order."""
    reader = ArchiveReader(directory)
    batches = [(taken.lsn, taken.counters.values.tobytes()) for _, taken in reader.batches()]
    return batches, [close.lsn for _, close in reader.closes()]


def compact_in_child(directory: Path, arm: Callable[[Killer], None]) -> int:
    """Compacts in a forked child that `arm` prepares with a way to kill itself; how the child ended."""
    child = os.fork()
    if not child:
        try:
            arm(lambda: os.kill(os.getpid(), signal.SIGKILL))
            retention.compact(directory, NOON_NS + DAY_NS)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def assert_whole(directory: Path, expected: object) -> None:
    """A start reads it, no row is missing or twice, and the next compaction ends with one file each."""
    assert content(directory) == expected
    assert part_reader.written(directory, NOON_NS) == {
        ("counters", "diskstats"): 10,
        ("closes", "laggard"): 11,
    }
    retention.compact(directory, NOON_NS + DAY_NS)
    assert content(directory) == expected
    left = [path for path in directory.rglob("*") if path.is_file()]
    assert len(left) == 1 + 1 + 1  # counters, closes, schemas
    for part in layout.all_parts(directory):
        part_reader.check(part)


def test_killed_at_every_step(before: Path, tmp_path: Path) -> None:
    expected, killed = content(before), 0
    while True:
        directory = tmp_path / str(killed)
        shutil.copytree(before, directory)

        def at_step(kill: Killer, left: int = killed) -> None:
            def step(event: str, _: object = None) -> None:
                nonlocal left
                if event in STEPS:
                    left -= 1
                    if left < 0:
                        kill()

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

        code = compact_in_child(directory, at_step)
        assert_whole(directory, expected)
        shutil.rmtree(directory)
        if not code:
            break
        assert code == -signal.SIGKILL
        killed += 1
    assert killed > 100


def test_killed_at_random_moments(before: Path, tmp_path: Path) -> None:
    expected, chance, killed = content(before), random.Random(1), 0
    shutil.copytree(before, tmp_path / "timed")
    began = time.monotonic()
    assert compact_in_child(tmp_path / "timed", lambda _: None) == 0
    seconds = time.monotonic() - began
    for number in range(RANDOM_KILLS):
        directory = tmp_path / str(number)
        shutil.copytree(before, directory)
        delay = chance.uniform(1e-4, seconds)

        def later(_: Killer, delay: float = delay) -> None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process at once, as SIGKILL does
            signal.setitimer(signal.ITIMER_REAL, delay)

        killed += compact_in_child(directory, later) == -signal.SIGALRM
        assert_whole(directory, expected)
        shutil.rmtree(directory)
    assert killed > RANDOM_KILLS / 4
