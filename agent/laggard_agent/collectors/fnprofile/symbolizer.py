"""Resolves an address in a process to the name of a function."""

from collections.abc import Callable
from pathlib import Path

from laggard_agent.collectors.fnprofile.address_spaces import Mapping, Space, program_of
from laggard_agent.collectors.fnprofile.kernel import Kernel
from laggard_agent.collectors.fnprofile.names import function_id
from laggard_agent.symbols import elf
from laggard_common.daemon import memory
from laggard_common.errors import CollectError

_KERNEL_MODE, _USER_MODE = 1, 2
_GUEST_MODES = (4, 5)
_MOST_KEPT = 1 << 12  # functions of one process
_MOST_IMAGES = 1 << 10
_CPU_SHARE = 0.05
_BURST_CPU_NS = 250_000_000
_NO_FILES = ("//anon", "/memfd:", "/SYSV", "/dev/", "/anon_hugepage", "/i915")
_NAMED = ("[vdso]", "[vsyscall]", "[uprobes]")


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
        found = space.functions.get(address)
        if found is None:
            found = function_id(space.program, *self._user_function(space, address))
            if len(space.functions) >= _MOST_KEPT:
                space.functions.clear()
            if self._left_ns > 0:
                space.functions[address] = found
        return found

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
