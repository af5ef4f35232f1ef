import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from laggard_agent.collectors.interface import KernelFile
from laggard_common.errors import CollectError
from tests.support.builders.trees import tree
from tests.support.processes import started


def is_open(path: Path) -> bool:
    return any(os.path.realpath(fd) == str(path) for fd in Path("/proc/self/fd").iterdir())


@contextmanager
def process() -> Iterator[tuple[Path, "subprocess.Popen[bytes]"]]:
    """An idle process and its folder in /proc."""
    code = "import ctypes, sqlite3, ssl; print(1, flush=True); input()"
    with started([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield Path(f"/proc/{child.pid}"), child


def test_a_file_of_proc_stays_open_and_is_current_at_each_read() -> None:
    with process() as (folder, _):
        path = folder / "oom_score_adj"
        score, maps = KernelFile(path), KernelFile(folder / "maps")
        score.read()
        assert is_open(path)
        path.write_text("77")
        assert score.read() == b"77\n"
        assert maps.read() == maps.read() == (folder / "maps").read_bytes()
        assert len(maps.read()) > 4096  # more than the kernel returns at once
        del score
        assert not is_open(path)


def test_a_file_that_is_gone_is_an_error_although_it_was_open() -> None:
    with process() as (folder, child):
        file = KernelFile(folder / "comm")
        for _ in range(2):
            assert file.read()
        child.kill()
        child.wait()
        for _ in range(2):
            with pytest.raises(CollectError, match="No such file"):
                file.read()


def test_a_replaced_file_is_opened_again(tmp_path: Path) -> None:
    file = KernelFile(tree(tmp_path, {"x": "1\n"}) / "x")
    assert file.read() == b"1\n"
    tree(tmp_path, {"new": "2\n"})
    (tmp_path / "new").rename(tmp_path / "x")
    assert file.read() == b"2\n"


def test_a_file_that_appears_late_is_read(tmp_path: Path) -> None:
    file = KernelFile(tmp_path / "x")
    with pytest.raises(CollectError):
        file.read()
    tree(tmp_path, {"x": ""})
    assert file.read() == b""
    tree(tmp_path, {"x": "1\n"})
    assert file.read() == b"1\n"
