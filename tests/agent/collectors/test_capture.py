import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from laggard_agent.collectors.capture import Capture, Captures
from laggard_common.errors import CollectError
from tests.agent.made import tree


def captures(*paths: Path) -> Captures:
    return Captures(paths, iter(range(100)).__next__)


def texts(capture: Capture) -> list[bytes]:
    return [file.text() for file in capture.files]


def is_kept_open(path: Path) -> bool:
    return any(os.path.realpath(fd) == str(path) for fd in Path("/proc/self/fd").iterdir())


@contextmanager
def process() -> Iterator[tuple[Path, "subprocess.Popen[bytes]"]]:
    """A process that does nothing, and its folder in /proc."""
    code = "import ctypes, sqlite3, ssl; print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            yield Path(f"/proc/{child.pid}"), child
        finally:
            child.kill()


def test_what_the_kernel_makes_up_is_kept_open_and_read_anew() -> None:
    with process() as (folder, _):
        taken = captures(folder / "oom_score_adj", folder / "maps")
        assert texts(taken.take()) == texts(taken.take())
        assert is_kept_open(folder / "oom_score_adj")
        (folder / "oom_score_adj").write_text("77")
        after = texts(taken.take())
        assert after == [b"77\n", (folder / "maps").read_bytes()]
        assert len(after[1]) > 4096  # more than the kernel gives at once
    del taken
    assert not is_kept_open(folder / "oom_score_adj")


def test_what_is_gone_is_said_though_it_was_kept_open() -> None:
    with process() as (folder, child):
        taken = captures(folder / "comm")
        for _ in range(2):
            taken.take()
        child.kill()
        child.wait()
        gone = taken.take()
        assert not gone.can_wait
        with pytest.raises(CollectError, match="No such file"):
            texts(gone)
        assert texts(captures(Path("/proc/self/comm")).take()) == [Path("/proc/self/comm").read_bytes()]


def test_a_file_that_is_replaced_is_opened_anew(tmp_path: Path) -> None:
    taken = captures(tree(tmp_path, {"x": "1\n"}) / "x")
    seen = [texts(taken.take())]
    tree(tmp_path, {"new": "2\n"})
    (tmp_path / "new").rename(tmp_path / "x")
    seen.append(texts(taken.take()))
    assert seen == [[b"1\n"], [b"2\n"]]


def test_what_waits_and_what_does_not(tmp_path: Path) -> None:
    folder = tree(tmp_path, {"x": "1\n", "y": "1\n2\n"})
    taken = captures(folder / "x", folder / "y")
    waits = [taken.take().can_wait]
    for files in ({"x": "3\n"}, {"y": "1\n2\n3\n"}, {"x": "3\n"}, {"x": ""}):
        tree(tmp_path, files)
        waits.append(taken.take().can_wait)
    assert waits == [False, True, False, True, False]


def test_a_file_that_cannot_be_read_leaves_the_others_be(tmp_path: Path) -> None:
    folder = tree(tmp_path, {"y": "12\n"})
    taken = captures(folder / "x", folder / "y")
    for began in (0, 2):
        capture = taken.take()
        assert [file.at_ns for file in capture.files] == [began, began + 1]
        assert (capture.can_wait, capture.size_bytes) == (False, 3)
        assert capture.files[1].text() == b"12\n"
        with pytest.raises(CollectError):
            capture.files[0].text()
