"""Resolves an address in a process or in the kernel (/proc/kallsyms) to the name of a function."""

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from laggard_agent.collectors.fnprofile.address_spaces import Mapping, Space, beginning_of, program_of
from laggard_agent.collectors.fnprofile.functions import function_id
from laggard_agent.symbols import elf
from laggard_common.daemon import memory
from laggard_common.errors import CollectError

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

_KERNEL_MODE, _USER_MODE = 1, 2
_GUEST_MODES = (4, 5)
_MOST_KEPT = 1 << 12  # functions of one process
_MOST_IMAGES = 1 << 10
_CPU_SHARE = 0.05
_BURST_CPU_NS = 250_000_000
_NO_FILES = ("//anon", "/memfd:", "/SYSV", "/dev/", "/anon_hugepage", "/i915")
_NAMED = ("[vdso]", "[vsyscall]", "[uprobes]")


def parse_kallsyms(blocks: Iterator[bytes]) -> elf.Symbols:
    """The functions in the text of /proc/kallsyms, which may be cut anywhere; names are `name\\tmodule`.

    None when the kernel hides its addresses: all are 0 then. Lines of another form are ignored.
    """
    columns = elf.SymbolColumns()
    rest = b""
    for block in blocks:
        text, newline, rest = (rest + block).rpartition(b"\n")
        rest = rest if len(rest) < _BLOCK_BYTES else b""
        for line in _LINE.finditer(text + newline):
            address = int(line[1], 16)
            if address:
                columns.add(address, _MOST_SIZE, len(columns.names), line[2] != b"T")
                columns.names += line[3] + (b"\t" + line[4] if line[4] else b"") + b"\0"
        if len(columns) > elf.MOST_FUNCTIONS:
            return elf.SymbolColumns().symbols()
    return columns.symbols()


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
        function = self._functions.get(address)
        if function is None:
            name, _, module = (self._symbols.lookup_address(address) or "?").partition("\t")
            function = (f"[{module}]" if module else KERNEL, name)
            if len(self._functions) >= _MOST_SIZE:
                self._functions.clear()
            self._functions[address] = function
        return function

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
                " all of them count as one function named ?"
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


class Resolver:
    """Resolves functions: of the kernel in `kernel`, of programs in their files.

    A file is searched in the process's root (containers), then in this process's, then by its mapping
    (deleted files); a replaced file is not used. Reading files takes at most _CPU_SHARE of a CPU in the long
    run; beyond that their functions are `?`.
    """

    def __init__(
        self, procfs: Path, kernel: Kernel, monotonic_ns: Callable[[], int], cpu_ns: Callable[[], int]
    ) -> None:
        self._procfs = procfs
        self._kernel = kernel
        self._monotonic_ns = monotonic_ns
        self._cpu_ns = cpu_ns
        self._earned_at_ns = monotonic_ns()
        self._left_ns = _BURST_CPU_NS
        self._images: dict[tuple[int, str], elf.Symbols | None] = {}

    def refresh(self) -> None:
        """Retries missing files, and drops files that are no longer needed in memory."""
        self._kernel.refresh()
        self._images.clear()
        memory.trim()

    def earn(self) -> None:
        """Adds to the CPU budget for reading files, in proportion to the time since the previous call."""
        now = self._monotonic_ns()
        earned = int((now - self._earned_at_ns) * _CPU_SHARE)
        self._earned_at_ns, self._left_ns = now, min(self._left_ns + earned, _BURST_CPU_NS)

    def name(self, space: Space, mode: int, address: int) -> str:
        """Name `program/image/function`; unknown parts are `?`. `mode`: as in the record's header."""
        if mode == _KERNEL_MODE:
            return function_id(space.program, *self._kernel.function_at(address))
        if mode != _USER_MODE:
            return function_id(space.program, "[guest]" if mode in _GUEST_MODES else "[hypervisor]", "?")
        function = space.functions.get(address)
        if function is None:
            function = function_id(space.program, *self._user_function(space, address))
            if len(space.functions) >= _MOST_KEPT:
                space.functions.clear()
            if self._left_ns > 0:
                space.functions[address] = function
        return function

    def _user_function(self, space: Space, address: int) -> tuple[str, str]:
        mapping = space.find(address)
        if mapping is None:
            return "?", "?"
        if not mapping.path.startswith("/") or mapping.path.startswith(_NO_FILES):
            return mapping.path if mapping.path in _NAMED else "[anon]", "?"
        symbols = self._symbols(space.pid, mapping)
        function = symbols.lookup(address - mapping.start + mapping.offset) if symbols else None
        return program_of(mapping.path), function or "?"

    def _symbols(self, pid: int, mapping: Mapping) -> elf.Symbols | None:
        key = (mapping.inode, mapping.path)
        if key not in self._images:
            if self._left_ns <= 0:
                return None
            if len(self._images) >= _MOST_IMAGES:
                self._images.clear()
            started = self._cpu_ns()
            self._images[key] = self._read(pid, mapping)
            self._left_ns -= self._cpu_ns() - started
        return self._images[key]

    def _read(self, pid: int, mapping: Mapping) -> elf.Symbols | None:
        process = self._procfs / str(pid)
        mapped = f"{process}/map_files/{mapping.start:x}-{mapping.end:x}"
        for path in (f"{process}/root{mapping.path}", mapping.path, mapped):
            try:
                return elf.symbols_of(path, mapping.inode)
            except (CollectError, ValueError):  # a path may hold anything
                continue
        return None
