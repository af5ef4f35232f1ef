"""I/O modes by volume from traces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.jobs.traces.io_modes import MODES, FileAccess, folded_accesses, io_modes, main_mode
from laggard_common.wire.trace_records import Folded

GIB = 2**30


def write(rank: int, file: str, size: int = 3 * GIB) -> FileAccess:
    """A write of a process."""
    return FileAccess(str(rank), file, "write", size)


OWN = [write(r, f"/ckpt/{r:03d}") for r in range(16)]
SHARED = [write(r, "/shared.h5") for r in range(16)]
GROUPS = [write(r, f"/part{r // 4}") for r in range(16)]
AGGREGATORS = [write(r, f"/agg{r}") for r in range(0, 16, 4)]
ALONE = [write(0, "/log")]


@pytest.mark.parametrize(
    ("accesses", "mode", "files"),
    [
        (OWN, "N-N", 0),
        (SHARED, "N-1", 0),
        ([*SHARED, *(write(r, "/shared2.h5") for r in range(16))], "N-1", 0),
        (GROUPS, "N-M", 4),
        (AGGREGATORS, "N-M", 4),
        (ALONE, "1-1", 0),
    ],
)
def test_one_mode(accesses: list[FileAccess], mode: str, files: int) -> None:
    found = io_modes(accesses, 16)["write"]
    assert (found.mode, found.shares[mode], found.files) == (mode, 1.0, files)


@pytest.mark.parametrize(
    ("accesses", "mode"),
    [
        ([*(write(r, f"/ckpt/{r:04d}") for r in range(2048)), write(0, "/out.txt", 4096)], "N-N"),
        ([FileAccess("log:-1", f"/f{at}", "read", GIB, 2048) for at in range(3)], "N-1"),
        ([FileAccess("log:-1", "/in", "read", GIB, 2048), *(write(r, f"/o{r}") for r in range(9))], "N-M"),
        ([FileAccess("log:-1", "/in", "read", 30 * GIB, 16), *OWN], "mixed"),
        ([], "none"),
    ],
)
def test_the_main_mode_of_both_directions(accesses: list[FileAccess], mode: str) -> None:
    assert main_mode(io_modes(accesses, 16 if accesses[-1:] == OWN[-1:] else 2048)) == mode


def test_shares_of_a_mixture() -> None:
    found = io_modes([*OWN, *SHARED, *ALONE], 16)["write"]
    assert found.mode == "mixed"
    assert found.shares == {"N-N": 16 / 33, "N-M": 0, "N-1": 16 / 33, "1-1": 1 / 33, "unknown": 0}


def test_files_that_are_only_numbered_are_told_apart_by_who_has_them() -> None:
    numbered = [write(r, f"/{r}", GIB) for r in range(16)]
    numbered += [write(r, "/16", GIB) for r in range(16)] + [write(0, "/17", 16 * GIB)]
    shares = io_modes(numbered)["write"].shares
    assert [shares[mode] for mode in MODES] == [1 / 3, 0, 1 / 3, 1 / 3, 0]


def test_without_process_or_file_the_volume_is_unknown() -> None:
    records = [
        Folded("cn-1", "write", "7", 0, GIB, 1, 0, 1, "/a"),
        Folded("cn-1", "write", "41:7", 0, GIB, 1, 0, 1, ""),
        Folded("cn-1", "pwrite64", "41:8", 2**43, 2**31 + 1, 4, 0, 1, "/b"),
        Folded("cn-1", "fsync", "41:8", None, 0, 1, 0, 1, "/b"),
    ]
    found = io_modes(folded_accesses(records))
    assert set(found) == {"write"}
    assert found["write"].size == 2 * GIB + 4 * (2**31 + 1)
    assert found["write"].shares["unknown"] == pytest.approx(1 / 5, rel=1e-6)


def test_no_data_has_no_mode() -> None:
    assert io_modes([]) == {}
    assert io_modes([write(0, "/a", 0)]) == {}


@given(
    st.lists(
        st.tuples(
            st.integers(0, 6), st.sampled_from(["", "/a", "/b1", "/b2", "/b3", "/c/4"]), st.integers(1, 2**62)
        ),
        min_size=1,
    ),
    st.integers(1, 9),
)
def test_every_byte_is_in_one_mode(rows: list[tuple[int, str, int]], processes: int) -> None:
    found = io_modes([write(*row) for row in rows], processes)["write"]
    assert found.size == sum(size for _, _, size in rows)
    assert sum(found.shares.values()) == pytest.approx(1)
    assert all(0 <= share <= 1 for share in found.shares.values())
