"""Tables that are not as they should be: another user's file may say anything."""

import os
import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.collectors.fntrace import shm_layout
from laggard_agent.collectors.fntrace.table import CallTable
from laggard_common.errors import CollectError
from tests.support.builders.fntrace import Made, sampled

MADE = Made()


def test_reads_what_was_written(tmp_path: Path) -> None:
    table = CallTable(MADE.write(tmp_path))
    assert table.read()
    assert table.head is not None
    assert (table.head.pid, table.head.program) == (MADE.pid, "server")
    assert table.functions == [(0, 0xFFFFFFFF), (0x1000, 0), (0x2000, 0)]
    assert table.sums == [0, 0, 5, 500, 7, 700]


def test_sizes_are_those_of_the_header_in_c() -> None:
    assert (shm_layout.HEAD_BYTES, shm_layout.MODULE_BYTES, shm_layout.FUNCTION_BYTES) == (216, 512, 16)


def test_truncated_at_every_byte(tmp_path: Path) -> None:
    path = MADE.write(tmp_path)
    whole = path.stat().st_size
    for length in range(whole - 1, -1, -1):
        os.truncate(path, length)
        table = CallTable(path)
        if length < shm_layout.HEAD_BYTES:  # its process still makes it
            assert table.read()
            assert table.head is None
        else:
            with pytest.raises(CollectError, match=f"{length} bytes, expected {whole}"):
                table.read()
        assert sum(table.sums) == 0


def test_truncated_after_it_was_read(tmp_path: Path) -> None:
    path = MADE.write(tmp_path)
    table = CallTable(path)
    table.read()
    for length in (5000, 100, 0):
        os.truncate(path, length)
        if length == 5000:
            with pytest.raises(CollectError):
                table.read()
        else:
            assert table.read()
        assert table.sums == [0, 0, 5, 500, 7, 700]


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ({"magic": b"SOMEONES"}, "not a table"),
        ({"version": 2}, "layout 2, this agent reads 1"),
        ({"version": 0}, "layout 0"),
        ({"pid": 0}, "cannot be right"),
        ({"pid": 2**32 - 1}, "cannot be right"),
        ({"rate": 0}, "cannot be right"),
        ({"rate": 2**64 - 1}, "cannot be right"),
        ({"modules": 3}, "cannot be right"),
        ({"functions": 9}, "cannot be right"),
        ({"slots": 5}, "cannot be right"),
        ({"module_capacity": 0}, "cannot be right"),
        ({"function_capacity": 2**32 - 1}, "cannot be right"),
        ({"slot_capacity": 2**32 - 1}, "cannot be right"),
        ({"function_capacity": 32768, "functions": 32768}, "bytes, expected"),
    ],
)
def test_heads_that_cannot_be_right(tmp_path: Path, head: dict[str, int | bytes], reason: str) -> None:
    path = MADE.write(tmp_path)
    path.write_bytes(MADE.data(**head))
    table = CallTable(path)
    with pytest.raises(CollectError, match=reason):
        table.read()
    assert table.sums == []


def test_one_that_is_not_finished_is_waited_for(tmp_path: Path) -> None:
    table = CallTable(MADE.write(tmp_path, complete=0))
    assert table.read()
    assert table.head is None
    MADE.write(tmp_path)
    assert table.read()
    assert table.sums[2:] == [5, 500, 7, 700]


def test_more_counts_than_are_read(tmp_path: Path) -> None:
    capacities = (1, 32768, 16)
    functions = [(i, 0) for i in range(32768)]
    huge = replace(MADE, capacities=capacities, functions=functions, slots=[()] * 16)
    with pytest.raises(CollectError, match="more than 8388608 bytes of counts"):
        CallTable(huge.write(tmp_path)).read()


def test_counters_that_fall_or_leap_do_neither_here(tmp_path: Path) -> None:
    path = MADE.write(tmp_path)
    table = CallTable(path)
    table.read()
    for counters, sums in (
        ([(0, 0), (4, 600), (8, 0)], [0, 0, 5, 600, 8, 700]),
        ([(0, 0), (2**64 - 1, 601), (9, 2**63)], [0, 0, 5, 601, 9, 700]),
        ([(0, 0), (3, 602), (10, 50)], [0, 0, 5, 602, 10, 700]),
    ):
        replace(MADE, slots=[counters]).write(tmp_path)
        table.read()
        assert table.sums == sums


@given(st.integers(0, 2**32 - 1))
def test_mutated(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    chance = random.Random(seed)
    folder = tmp_path_factory.mktemp("mutated")
    collector = sampled(folder)
    sums: dict[str, int] = {}
    for _ in range(4):
        data = bytearray(MADE.data())
        for _ in range(chance.randrange(12)):
            spot = chance.choice((216, 4096 + 1024, len(data)))
            data[chance.randrange(spot)] = chance.choice((0, 1, 0x2F, 0x7F, 0xFF, chance.randrange(256)))
        path = folder / f"{MADE.pid}.{MADE.start}.0"
        with path.open("r+b" if path.exists() else "wb") as file:
            file.write(data)
        collector.sample()
        assert "Error: " not in collector.error  # nothing but CollectError
        for id_ in collector.ids("fntrace"):
            calls = int(collector.row("fntrace", id_)["calls"] or 0)
            assert calls >= sums.get(id_, 0)
            sums[id_] = calls


def refuse_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def refuse_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def refuse_link(path: Path) -> None:
    moved = path.rename(path.with_name("elsewhere"))
    path.symlink_to(moved)


@pytest.mark.parametrize("spoil", [refuse_fifo, refuse_directory, refuse_link])
def test_no_regular_file(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    path = MADE.write(tmp_path)
    spoil(path)
    with pytest.raises(CollectError):
        CallTable(path).read()


@pytest.mark.parametrize("closed", ["table", "directory"])
def test_permission_denied(closed: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = MADE.write(folder) if closed == "table" else folder
        folder.chmod(0o755)
        path.chmod(0)
        user = os.geteuid()
        if user == 0:  # who may read everything
            os.seteuid(65534)
        try:
            now = sampled(folder).sample()
        finally:
            os.seteuid(user)
            path.chmod(0o700)
        assert now.error == f"{path}: Permission denied"
        assert now.row("fntrace_node", "fntrace")["tables_failed"] == 1


def test_vanished(tmp_path: Path) -> None:
    path = MADE.write(tmp_path)
    table = CallTable(path)
    assert table.read()
    path.unlink()
    assert not table.read()
