"""The reader of ELF symbols: against nm, of every class and byte order, and on files that lie."""

import os
import random
import shutil
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_agent.symbols import elf
from laggard_common.errors import CollectError
from tests.support.builders.elf_image import BASE, TEXT_AT, TEXT_BYTES, Sym, elf_image
from tests.support.processes import run_command
from tests.support.thorough import examples

AT = BASE + TEXT_AT
SYMBOLS = (
    Sym("first", AT, 32),
    Sym("inner", AT + 8, 4, binding=0),
    Sym("assembler", AT + 64, 0),
    Sym("last", AT + 256, 16),
    Sym("data", AT + 32, 8, type=1),
    Sym("elsewhere", 0, 8, section=0),
)
PROGRAM = """
static int quiet(int n) { return n * 3; }
int loud(int n) { return quiet(n) + 1; }
int main(int argc, char **argv) { return loud(argc) + argv[0][0]; }
"""


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("order", ["<", ">"])
def test_lookup(wide: bool, order: str) -> None:
    symbols = elf.parse(elf_image(SYMBOLS, wide=wide, order=order))
    expected = {0: "first", 31: "first", 8: "inner", 12: "first", 32: None, 64: "assembler", 255: "assembler"}
    expected |= {256: "last", 271: "last", 272: None}
    assert {at: symbols.lookup_address(AT + at) for at in expected} == expected
    assert {at: symbols.lookup(TEXT_AT + at) for at in expected} == expected
    assert symbols.lookup(TEXT_AT - 1) is None
    assert symbols.lookup(TEXT_AT + TEXT_BYTES) is None


def test_the_name_of_a_function_that_has_several() -> None:
    """Whatever their order, so that all nodes call it the same."""
    names = [
        Sym("__libc_write", AT),
        Sym("__write", AT, binding=2),
        Sym("write", AT, binding=2),
        Sym("_write", AT),
        Sym("swrite", AT, 0),
        Sym("local", AT, binding=0),
    ]
    for seed in range(10):
        random.Random(seed).shuffle(names)
        assert elf.parse(elf_image(names)).lookup_address(AT) == "_write"


def test_stripped() -> None:
    """What it exports, what it hides, and nothing else."""
    exported, hidden = Sym("exported", AT), Sym("hidden", AT + 64)
    image = elf_image((), dynamic=[exported], hidden=elf_image([hidden]))
    symbols = elf.parse(image)
    assert [symbols.lookup_address(AT + at) for at in (0, 32, 64)] == ["exported", None, "hidden"]
    assert elf.parse(elf_image((), dynamic=[exported])).lookup(TEXT_AT) == "exported"
    assert elf.parse(elf_image(())).lookup(TEXT_AT) is None
    assert elf.parse(elf_image([exported], dynamic=[hidden])).lookup_address(AT + 64) is None


def test_against_nm(tmp_path: Path) -> None:
    if not (shutil.which("gcc") and shutil.which("nm") and shutil.which("strip")):
        pytest.skip("needs gcc, nm and strip")
    source, program = tmp_path / "p.c", tmp_path / "p"
    source.write_text(PROGRAM)
    run_command(["gcc", "-O0", "-Wl,--build-id=0x0123456789abcdef", "-o", str(program), str(source)])
    assert elf.build_id(str(program)).hex() == "0123456789abcdef"
    lines = run_command(["nm", str(program)]).stdout
    listed = {
        words[2]: int(words[0], 16)
        for words in map(str.split, lines.splitlines())
        if len(words) == 3 and words[2] in ("quiet", "loud", "main")
    }
    assert len(listed) == 3
    symbols = elf.symbols_of(str(program))
    assert {symbols.lookup_address(address + 1) for address in listed.values()} == set(listed)
    run_command(["strip", str(program)])
    assert elf.symbols_of(str(program)).lookup_address(listed["quiet"]) is None


def test_a_file_is_read_again_when_it_changed(tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(elf_image([Sym("before", AT)]))
    first = elf.symbols_of(str(path))
    assert elf.symbols_of(str(path)) is first
    path.write_bytes(elf_image([Sym("afterwards", AT)]))
    assert elf.symbols_of(str(path)).lookup(TEXT_AT) == "afterwards"


def test_another_file_by_now(tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(elf_image([Sym("f", AT)]))
    assert elf.symbols_of(str(path), path.stat().st_ino).lookup(TEXT_AT) == "f"
    with pytest.raises(CollectError, match="another file by now"):
        elf.symbols_of(str(path), path.stat().st_ino + 1)


def test_what_is_no_image(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "text").write_text("x" * 100)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "loop").symlink_to("loop")
    for name, reason in {
        "fifo": "not a regular file",
        ".": "not a regular file",
        "text": "not an ELF file",
        "empty": "not an ELF file",
        "gone": "No such file or directory",
        "loop": "Too many levels of symbolic links",
    }.items():
        with pytest.raises(CollectError, match=reason):
            elf.symbols_of(str(tmp_path / name))


def looked_at(data: bytes) -> None:
    """Every part of the reader on `data`: it answers or refuses."""
    try:
        symbols = elf.parse(data)
    except CollectError:
        return
    for at in (0, 8, 64, 300, 2**63, 2**64 - 1):
        symbols.lookup(TEXT_AT + at)
        symbols.lookup_address(AT + at)


IMAGES = [
    elf_image(SYMBOLS),
    elf_image((), dynamic=SYMBOLS, hidden=elf_image([Sym("hidden", AT + 512)])),
    elf_image(SYMBOLS, wide=False, order=">"),
]


@pytest.mark.parametrize("image", IMAGES)
def test_truncated_at_every_byte(image: bytes) -> None:
    for size in range(len(image)):
        looked_at(image[:size])


@given(st.sampled_from(IMAGES), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=20))
@settings(max_examples=examples(300), deadline=None)
def test_mutated(image: bytes, changes: list[tuple[int, int]]) -> None:
    data = bytearray(image)
    for at, value in changes:
        data[at % len(data)] = value
    looked_at(bytes(data))


@given(st.binary(max_size=300))
def test_arbitrary_bytes(data: bytes) -> None:
    looked_at(data)
    looked_at(b"\x7fELF\x02\x01\x01" + data)


def test_names_without_an_end_are_cut() -> None:
    symbols = elf.parse(elf_image([Sym("x" * 5000, AT), Sym("y", AT + 64)]))
    assert symbols.lookup_address(AT) == "x" * 512
    assert symbols.lookup_address(AT + 64) == "y"


def test_a_bomb_is_not_unpacked() -> None:
    packed = elf_image((), dynamic=[Sym("exported", AT)], hidden=bytes(64 << 20))
    assert elf.parse(packed).lookup(TEXT_AT) == "exported"


def test_too_many_functions_count_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf, "MOST_FUNCTIONS", 3)
    many = [Sym(f"f{i}", AT + i * 16) for i in range(4)]
    assert elf.parse(elf_image(many)).lookup(TEXT_AT) is None
    assert elf.parse(elf_image(many[:3])).lookup(TEXT_AT) == "f0"


def test_a_table_of_too_many_symbols_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "holes"
    image = bytearray(elf_image([Sym("f", AT)], dynamic=[Sym("exported", AT)]))
    (sections_at,) = struct.unpack_from("<Q", image, 0x28)
    size_of_symtab = sections_at + 2 * 64 + 32
    assert struct.unpack_from("<Q", image, size_of_symtab) == (24,)
    path.write_bytes(image)
    assert elf.symbols_of(str(path)).lookup(TEXT_AT) == "f"
    struct.pack_into("<Q", image, size_of_symtab, 1 << 36)
    path.write_bytes(image)
    os.truncate(path, 1 << 37)  # all of it is there to be read: zeros
    assert elf.symbols_of(str(path)).lookup(TEXT_AT) == "exported"


def test_build_ids_of_what_is_no_image(tmp_path: Path) -> None:
    image = Path("/proc/self/exe").read_bytes()[:8192]
    path = tmp_path / "image"
    chance = random.Random(3)
    for length in (0, 1, 63, 64, 120, 500, 8192):
        for _ in range(30):
            data = bytearray(image[:length])
            for _ in range(chance.randrange(20) if data else 0):
                data[chance.randrange(min(1024, len(data)))] = chance.randrange(256)
            path.write_bytes(data)
            with suppress(CollectError):
                assert len(elf.build_id(str(path))) <= 65536
