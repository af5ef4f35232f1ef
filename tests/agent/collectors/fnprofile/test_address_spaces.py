"""Address spaces: what is where in which process, as the kernel tells it and as /proc says."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.collectors.fnprofile import address_spaces as module
from laggard_agent.collectors.fnprofile.address_spaces import Mapping, Space, Spaces, parse_maps, thread_kind
from laggard_agent.collectors.fnprofile.records import Ended, Forked, Mapped, Renamed
from tests.support.builders.fnprofile import process

MAPS = """\
00400000-00401000 r--p 00000000 08:01 77                                 /usr/bin/dd
00401000-00409000 r-xp 00001000 08:01 77                                 /usr/bin/dd
7f0000000000-7f0000001000 rwxp 00000000 00:00 0
7f0000002000-7f0000003000 r-xp 00002000 08:01 78                         /lib/with blank.so (deleted)
7fff00000000-7fff00002000 r-xp 00000000 00:00 0                          [vdso]
"""


def test_parse_maps() -> None:
    assert parse_maps(MAPS.encode()) == [
        Mapping(0x401000, 0x409000, 0x1000, 77, "/usr/bin/dd"),
        Mapping(0x7F0000000000, 0x7F0000001000, 0, 0, ""),
        Mapping(0x7F0000002000, 0x7F0000003000, 0x2000, 78, "/lib/with blank.so"),
        Mapping(0x7FFF00000000, 0x7FFF00002000, 0, 0, "[vdso]"),
    ]


def test_maps_truncated_at_every_byte() -> None:
    whole = parse_maps(MAPS.encode())
    for size in range(len(MAPS)):
        found = parse_maps(MAPS[:size].encode())
        assert found[:-1] == whole[: len(found)][:-1]


@given(st.binary(max_size=300))
def test_maps_of_arbitrary_bytes(data: bytes) -> None:
    parse_maps(data)
    parse_maps(b"00400000-00401000 r-xp 00000000 08:01 77 " + data)


def test_maps_are_bounded() -> None:
    assert parse_maps(b"x" * 4_000_000) == []
    lines = b"".join(b"%x-%x r-xp 0 08:01 1 /x\n" % (i, i + 1) for i in range(5000))
    assert len(parse_maps(lines)) == 1024


@pytest.mark.parametrize(
    ("comm", "kind"),
    [
        ("kworker/3:1H-kblockd", "kworker"),
        ("ll_ost_io00_003", "ll_ost_io"),
        ("nfsd", "nfsd"),
        ("jbd2/sda1-8", "jbd2"),
        ("scsi_eh_0", "scsi_eh"),
        ("mdt00-001", "mdt"),
        ("42", "42"),
        ("", ""),
    ],
)
def test_kinds_of_kernel_threads(comm: str, kind: str) -> None:
    assert thread_kind(comm) == kind


def mapped(pid: int, start: int, end: int, path: str, offset: int = 0) -> Mapped:
    """A file at some addresses."""
    return Mapped(0, pid, start, end, offset, 1, path)


def path_at(space: Space, address: int) -> str | None:
    """What file is at an address."""
    found = space.find(address)
    return found.path if found else None


def test_a_program_that_starts(tmp_path: Path) -> None:
    """fork, exec, maps: nothing is read from /proc, where it may be gone already."""
    spaces = Spaces(tmp_path)
    spaces.apply(Renamed(0, 5, "sh", True))
    spaces.apply(mapped(5, 100, 200, "/usr/bin/dash"))
    spaces.apply(Forked(1, 6, 5))
    child = spaces.of(6)
    assert (child.program, path_at(child, 150)) == ("dash", "/usr/bin/dash")
    spaces.apply(Renamed(2, 6, "dd", True))
    spaces.apply(mapped(6, 300, 400, "/usr/bin/dd"))
    spaces.apply(mapped(6, 500, 600, "/lib/libc.so.6"))
    dd = spaces.of(6)
    assert (dd.program, path_at(dd, 150), path_at(dd, 300), path_at(dd, 400)) == (
        "dd",
        None,
        "/usr/bin/dd",
        None,
    )
    assert path_at(child, 150) == "/usr/bin/dash"  # samples from before are still of that
    spaces.apply(Ended(3, 6))
    assert len(spaces) == 1
    assert path_at(spaces.of(5), 150) == "/usr/bin/dash"


def test_what_a_child_maps_is_its_own(tmp_path: Path) -> None:
    spaces = Spaces(tmp_path)
    spaces.apply(Renamed(0, 5, "a", True))
    spaces.apply(mapped(5, 100, 200, "/a"))
    spaces.apply(Forked(1, 6, 5))
    spaces.apply(mapped(6, 300, 400, "/b"))
    assert (path_at(spaces.of(5), 300), path_at(spaces.of(6), 300)) == (None, "/b")


def test_what_was_there_before_is_read(tmp_path: Path) -> None:
    process(tmp_path, 5, "dd", "/usr/bin/dd (deleted)", MAPS)
    spaces = Spaces(tmp_path)
    spaces.apply(Forked(1, 6, 5))  # of a parent that nobody has looked at, and that is all there is in /proc
    for pid in (5, 6):
        space = spaces.of(pid)
        assert (space.program, path_at(space, 0x402000)) == ("dd", "/usr/bin/dd")


def test_the_last_mapping_counts(tmp_path: Path) -> None:
    process(tmp_path, 5, "dd", "/usr/bin/dd", MAPS)
    spaces = Spaces(tmp_path)
    assert path_at(spaces.of(5), 0x402000) == "/usr/bin/dd"
    spaces.apply(mapped(5, 0x402000, 0x403000, "/new"))
    space = spaces.of(5)
    assert [path_at(space, at) for at in (0x401FFF, 0x402000, 0x403000)] == [
        "/usr/bin/dd",
        "/new",
        "/usr/bin/dd",
    ]
    assert space.program == "dd"


def test_kernel_threads(tmp_path: Path) -> None:
    process(tmp_path, 2, "kthreadd")
    process(tmp_path, 30, "kworker/0:1-events")
    spaces = Spaces(tmp_path)
    assert spaces.of(2).program == "kthreadd"
    assert spaces.of(30).program == "kworker"
    spaces.apply(Forked(0, 31, 2))
    spaces.apply(Renamed(1, 31, "ll_ost_io00_003", False))
    assert spaces.of(31).program == "ll_ost_io"


def test_processes_that_have_gone_or_may_not_be_read(tmp_path: Path) -> None:
    process(tmp_path, 5, "secretd", maps=MAPS)  # no exe: the link may not be read
    (tmp_path / "5/maps").unlink()
    spaces = Spaces(tmp_path)
    assert (spaces.of(5).program, spaces.of(5).find(0x402000)) == ("secretd", None)
    spaces.apply(mapped(5, 100, 200, "/lib/late.so"))
    assert (spaces.of(5).program, path_at(spaces.of(5), 100)) == ("secretd", "/lib/late.so")
    assert (spaces.of(99).program, spaces.of(99).find(1)) == ("?", None)
    assert spaces.of(0xFFFFFFFF).program == "?"


def test_a_process_that_maps_without_end(tmp_path: Path) -> None:
    """As a compiler at run time may: the same place again and again, or ever new ones."""
    process(tmp_path, 5, "dd", "/usr/bin/dd", MAPS)
    spaces = Spaces(tmp_path)
    space = spaces.of(5)
    for _ in range(3000):
        spaces.apply(mapped(5, 0x10, 0x20, "//anon"))
    assert path_at(space, 0x402000) == "/usr/bin/dd"
    for i in range(3000):
        spaces.apply(mapped(5, 0x100 + i * 16, 0x110 + i * 16, "//anon"))
    assert path_at(spaces.of(5), 0x402000) == "/usr/bin/dd"


def test_the_number_of_processes_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_SPACES", 100)
    spaces = Spaces(tmp_path)
    for pid in range(1000):
        spaces.of(pid)
        assert len(spaces) <= 100
