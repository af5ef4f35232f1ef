"""Function names of the kernel and its modules: /proc/kallsyms."""

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from laggard_agent.collectors.fnprofile.address_spaces import beginning_of
from laggard_agent.symbols import elf

_log = logging.getLogger(__name__)

KERNEL = "[kernel]"
_LINE = re.compile(
    rb"^([0-9a-f]{8,16}) ([tTwW]) (?!__pfx_|__cfi_)([^\s\[]{1,512})(?:\t\[([^\s\]]{1,64})\])?$", re.M
)
_BLOCK_BYTES = 1 << 20
_MOST_BLOCKS = 64
_MOST_MODULES_BYTES = 1 << 20
_MOST_SIZE = 1 << 16  # of a function: addresses farther behind the last one are something else
_LOOK_EVERY_NS = 60 * 1_000_000_000


def parse_kallsyms(blocks: Iterator[bytes]) -> elf.Symbols:
    """The functions in the text of /proc/kallsyms, which may be cut anywhere; names are `name\\tmodule`.

    None when the kernel hides its addresses: all are 0 then. Lines of another form are ignored.
    """
    found = elf.SymbolColumns()
    rest = b""
    for block in blocks:
        text, newline, rest = (rest + block).rpartition(b"\n")
        rest = rest if len(rest) < _BLOCK_BYTES else b""
        for line in _LINE.finditer(text + newline):
            address = int(line[1], 16)
            if address:
                found.add(address, _MOST_SIZE, len(found.names), line[2] != b"T")
                found.names += line[3] + (b"\t" + line[4] if line[4] else b"") + b"\0"
        if len(found) > elf.MOST_FUNCTIONS:
            return elf.SymbolColumns().symbols()
    return found.symbols()


class Kernel:
    """The kernel's functions by address; read at first use, and when modules were loaded or removed.

    `is_hidden`: the kernel hides its addresses; then all its functions are one, `?`.
    """

    def __init__(self, procfs: Path, monotonic_ns: Callable[[], int]) -> None:
        self._procfs = procfs
        self._monotonic_ns = monotonic_ns
        self._look_at_ns: int | None = None
        self._modules = b""
        self._symbols = elf.SymbolColumns().symbols()
        self._functions: dict[int, tuple[str, str]] = {}
        self.is_hidden = False

    def function_at(self, address: int) -> tuple[str, str]:
        """Image and function at an address of the kernel."""
        found = self._functions.get(address)
        if found is None:
            name, _, module = (self._symbols.lookup_address(address) or "?").partition("\t")
            found = (f"[{module}]" if module else KERNEL, name)
            if len(self._functions) >= _MOST_SIZE:
                self._functions.clear()
            self._functions[address] = found
        return found

    def refresh(self) -> None:
        """Reads the names again when they are due and the modules have changed."""
        now = self._monotonic_ns()
        if self._look_at_ns is not None and now < self._look_at_ns:
            return
        first = self._look_at_ns is None
        self._look_at_ns = now + _LOOK_EVERY_NS
        modules = beginning_of(self._procfs / "modules", _MOST_MODULES_BYTES)
        if not first and modules == self._modules and not self.is_hidden:
            return
        self._modules = modules
        self._symbols = parse_kallsyms(_blocks(self._procfs / "kallsyms"))
        self._functions.clear()
        hidden = not self._symbols.starts
        if hidden and not self.is_hidden:
            _log.warning(
                "collector fnprofile: the kernel hides its functions (kernel.kptr_restrict, CAP_SYSLOG):"
                " all are counted as one, named ?"
            )
        self.is_hidden = hidden


def _blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a file up to a read error, at most _MOST_BLOCKS blocks."""
    try:
        with path.open("rb") as file:
            for _ in range(_MOST_BLOCKS):
                block = file.read(_BLOCK_BYTES)
                if not block:
                    return
                yield block
    except OSError:
        return
