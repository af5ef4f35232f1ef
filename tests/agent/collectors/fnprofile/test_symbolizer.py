"""From addresses to names: files where the process sees them, and files that are not what they were."""

import os
from pathlib import Path

import pytest

from laggard_agent.collectors.fnprofile.address_spaces import Spaces
from laggard_agent.collectors.fnprofile.functions import function_id, other_of
from laggard_agent.collectors.fnprofile.records import Mapped, Renamed
from laggard_agent.collectors.fnprofile.symbolizer import Resolver
from laggard_common.wire.limits import MAX_NAME_CHARS
from tests.support.builders.elf_image import BASE, TEXT_AT, TEXT_BYTES, Sym, elf_image
from tests.support.builders.fnprofile import KERNEL_MODE, USER_MODE, process, resolver
from tests.support.clock import FakeClock

IMAGE = elf_image([Sym("hot", BASE + TEXT_AT + 0x100, 64)])
START = 0x7F0000000000
HOT = START + 0x110


def name_at(made: Resolver, procfs: Path, path: str, inode: int, address: int = HOT, pid: int = 5) -> str:
    """What a program is said to run that has mapped the text of the image at `path` to START."""
    spaces = Spaces(procfs)
    spaces.apply(Renamed(0, pid, "x", True))
    spaces.apply(Mapped(1, pid, START, START + TEXT_BYTES, TEXT_AT, inode, path))
    return made.name(spaces.of(pid), USER_MODE, address)


@pytest.fixture
def procfs(tmp_path: Path) -> Path:
    """With process 5, whose root is another folder."""
    process(tmp_path / "proc", 5, "x")
    return tmp_path / "proc"


def put(path: Path, data: bytes = IMAGE) -> int:
    """Writes a file; its inode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path.stat().st_ino


def test_where_the_process_sees_it(procfs: Path) -> None:
    inode = put(procfs / "5/root/opt/bin/server")
    assert name_at(resolver(procfs), procfs, "/opt/bin/server", inode) == "server/server/hot"
    assert name_at(resolver(procfs), procfs, "/opt/bin/server", inode, HOT + 64) == "server/server/?"
    assert name_at(resolver(procfs), procfs, "/opt/bin/server", inode, START - 1) == "server/?/?"


def test_where_we_see_it_when_the_process_has_gone(procfs: Path, tmp_path: Path) -> None:
    path = tmp_path / "bin/server"
    inode = put(path)
    assert name_at(resolver(procfs), procfs, str(path), inode, pid=6) == "server/server/hot"


def test_another_file_in_its_place_is_not_it(procfs: Path, tmp_path: Path) -> None:
    """An upgrade: the old one is mapped still, and can be read through the mapping alone."""
    path = tmp_path / "bin/server"
    old = put(path)
    path.rename(tmp_path / "old")
    put(path, elf_image([Sym("cold", BASE + TEXT_AT + 0x100, 64)]))
    assert name_at(resolver(procfs), procfs, str(path), old) == "server/server/?"
    mapped = procfs / f"5/map_files/{START:x}-{START + TEXT_BYTES:x}"
    mapped.parent.mkdir()
    mapped.symlink_to(tmp_path / "old")
    assert name_at(resolver(procfs), procfs, str(path), old) == "server/server/hot"


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", IMAGE[:70], bytes(1000)])
def test_files_that_are_no_images(procfs: Path, data: bytes) -> None:
    inode = put(procfs / "5/root/x", data)
    assert name_at(resolver(procfs), procfs, "/x", inode) == "x/x/?"


def test_files_that_may_not_be_read(procfs: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        path = procfs / "5/root/x"
        path.mkdir()  # what root cannot read as a file either
        inode = path.stat().st_ino
    else:
        inode = put(procfs / "5/root/x")
        (procfs / "5/root/x").chmod(0)
    assert name_at(resolver(procfs), procfs, "/x", inode) == "x/x/?"
    assert name_at(resolver(procfs), procfs, "/a\0b", inode) == "a?b/a?b/?"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("//anon", "[anon]"),
        ("[heap]", "[anon]"),
        ("/memfd:doublemapper", "[anon]"),
        ("/dev/zero", "[anon]"),
        ("[vdso]", "[vdso]"),
        ("", "[anon]"),
    ],
)
def test_code_that_is_in_no_file(procfs: Path, path: str, name: str) -> None:
    assert name_at(resolver(procfs), procfs, path, 0).partition("/")[2] == f"{name}/?"


def test_reading_files_may_take_so_much_cpu_and_no_more(procfs: Path) -> None:
    """Afterwards functions are not known for a while; no `?` is kept beyond that."""
    clock, cpu = FakeClock(), FakeClock(monotonic=0)

    def slow_cpu_ns() -> int:
        cpu.sleep(0.1)
        return cpu.monotonic_ns()

    made = resolver(procfs, clock, slow_cpu_ns)
    spaces = Spaces(procfs)
    spaces.apply(Renamed(0, 5, "x", True))
    for i in range(5):
        inode = put(procfs / f"5/root/lib{i}")
        spaces.apply(
            Mapped(1, 5, START + i * TEXT_BYTES, START + (i + 1) * TEXT_BYTES, TEXT_AT, inode, f"/lib{i}")
        )
    space = spaces.of(5)

    def names() -> list[str]:
        return [made.name(space, USER_MODE, HOT + i * TEXT_BYTES).rpartition("/")[2] for i in range(5)]

    assert names() == ["hot", "hot", "hot", "?", "?"]
    made.refresh()
    assert names() == ["hot", "hot", "?", "?", "?"]  # kept for these addresses
    clock.sleep(1000)
    made.refresh()
    made.earn()
    assert names() == ["hot"] * 5


def test_the_kernel_and_guests(procfs: Path) -> None:
    (procfs / "kallsyms").write_text("ffffffff81000000 T vfs_read\nffffffffc0000000 t read\t[xfs]\n")
    made, space = resolver(procfs), Spaces(procfs).of(5)
    assert made.name(space, KERNEL_MODE, 0xFFFFFFFF81000010) == "x/[kernel]/vfs_read"
    assert made.name(space, KERNEL_MODE, 0xFFFFFFFFC0000010) == "x/[xfs]/read"
    assert made.name(space, 5, 0x10) == "x/[guest]/?"
    assert made.name(space, 3, 0x10) == "x/[hypervisor]/?"


def test_ids() -> None:
    assert function_id("a/b", "lib.so", "operator/(int)") == "a:b/lib.so/operator:(int)"
    assert function_id("", "a\nb", "\udcff") == "?/a?b/?"
    long = function_id("p" * 300, "i" * 300, "f" * 300)
    assert len(long) == MAX_NAME_CHARS
    assert long != function_id("p" * 300, "i" * 300, "f" * 299 + "g")
    assert other_of("dd/libc.so.6/read") == "dd/other"
