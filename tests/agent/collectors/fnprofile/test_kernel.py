"""The kernel's functions: /proc/kallsyms as it is, hidden, and as no kernel would write it."""

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.collectors.fnprofile.symbolizer import Kernel, parse_kallsyms
from laggard_agent.symbols import elf
from tests.support.clock import FakeClock

TEXT = """\
ffffffff81000000 T _stext
ffffffff81000000 T startup_64
ffffffff81000040 t do_one
ffffffff81000100 T __pfx_vfs_read
ffffffff81000110 T vfs_read
ffffffff81000400 D jiffies
ffffffffc0100000 t xfs_read\t[xfs]
ffffffffc0000000 T ext4_read\t[ext4]
"""
AT = 0xFFFFFFFF81000000


def names(symbols: elf.Symbols, *addresses: int) -> list[str | None]:
    """What is at each address."""
    return [symbols.lookup_address(address) for address in addresses]


def test_parse() -> None:
    symbols = parse_kallsyms(iter([TEXT.encode()]))
    assert names(symbols, AT - 1, AT, AT + 0x44, AT + 0x111) == [None, "startup_64", "do_one", "vfs_read"]
    assert names(symbols, 0xFFFFFFFFC0100010, 0xFFFFFFFFC0000010) == ["xfs_read\txfs", "ext4_read\text4"]
    assert names(symbols, AT + 0x110 + (1 << 16)) == [None]


def test_cut_at_every_byte() -> None:
    """In blocks as they come, the same; and truncated there, what is whole."""
    data = TEXT.encode()
    whole = parse_kallsyms(iter([data]))
    for at in range(len(data)):
        assert parse_kallsyms(iter([data[:at], data[at:]])) == whole
        assert len(parse_kallsyms(iter([data[:at]])).starts) <= len(whole.starts)


def test_a_line_of_100_mb() -> None:
    blocks = (b"x" * (1 << 20) for _ in range(100))
    symbols = parse_kallsyms(iter([TEXT.encode(), *blocks, b"\nffffffff81000800 T last\n"]))
    assert names(symbols, AT + 0x111, AT + 0x800) == ["vfs_read", "last"]


@given(st.binary(max_size=300))
def test_arbitrary_bytes(data: bytes) -> None:
    parse_kallsyms(iter([data]))
    parse_kallsyms(iter([b"ffffffff81000000 T " + data]))


def test_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf, "MOST_FUNCTIONS", 3)
    assert not parse_kallsyms(iter([TEXT.encode()])).starts


def kernel(tmp_path: Path, text: str | None) -> tuple[Kernel, FakeClock]:
    """One that has looked once."""
    if text is not None:
        (tmp_path / "kallsyms").write_text(text)
    clock = FakeClock()
    made = Kernel(tmp_path, clock.monotonic_ns)
    made.refresh()
    return made, clock


def test_functions(tmp_path: Path) -> None:
    made, _ = kernel(tmp_path, TEXT)
    assert made.function_at(AT + 0x111) == ("[kernel]", "vfs_read")
    assert made.function_at(0xFFFFFFFFC0100010) == ("[xfs]", "xfs_read")
    assert made.function_at(0xFFFFFFFFD0000000) == ("[kernel]", "?")
    assert not made.is_hidden


@pytest.mark.parametrize("text", [None, "", "\0\xff", "0000000000000000 T vfs_read\n0000000000000000 t f\n"])
def test_hidden(tmp_path: Path, text: str | None, caplog: pytest.LogCaptureFixture) -> None:
    """Said once; seen again when it is hidden no more."""
    with caplog.at_level(logging.WARNING):
        made, clock = kernel(tmp_path, text)
        clock.sleep(61)
        made.refresh()
    assert (made.is_hidden, made.function_at(AT)) == (True, ("[kernel]", "?"))
    assert [r.getMessage() for r in caplog.records] == [
        "collector fnprofile: the kernel hides its functions (kernel.kptr_restrict, CAP_SYSLOG):"
        " all of them count as one function named ?"
    ]
    (tmp_path / "kallsyms").write_text(TEXT)
    clock.sleep(61)
    made.refresh()
    assert (made.is_hidden, made.function_at(AT + 0x111)) == (False, ("[kernel]", "vfs_read"))


def test_read_again_when_modules_changed(tmp_path: Path) -> None:
    (tmp_path / "modules").write_text("ext4 1 0 - Live 0x0\n")
    made, clock = kernel(tmp_path, TEXT)
    address = 0xFFFFFFFFC0200010
    assert made.function_at(address) == ("[kernel]", "?")
    (tmp_path / "kallsyms").write_text(TEXT + "ffffffffc0200000 t lustre_read\t[lustre]\n")
    clock.sleep(61)
    made.refresh()
    assert made.function_at(address) == ("[kernel]", "?")  # nothing told that it changed
    (tmp_path / "modules").write_text("lustre 1 0 - Live 0x0\n")
    made.refresh()
    assert made.function_at(address) == ("[kernel]", "?")  # not yet time
    clock.sleep(61)
    made.refresh()
    assert made.function_at(address) == ("[lustre]", "lustre_read")
