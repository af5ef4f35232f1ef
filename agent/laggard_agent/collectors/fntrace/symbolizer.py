"""Resolves functions in a process's images to `program/image/function`."""

import os
import stat
import time
from collections.abc import Callable

from laggard_agent.collectors.fnprofile.functions import function_id, other_of
from laggard_agent.collectors.fntrace.shm_layout import Module
from laggard_agent.collectors.fntrace.table import CallTable
from laggard_agent.symbols.elf import Symbols, build_id, symbols_of
from laggard_common.errors import CollectError

IMAGES_A_SAMPLE = 4
CPU_NS_A_SAMPLE = 50_000_000
_MOST_CPU_NS = 10 * CPU_NS_A_SAMPLE  # saved by samples that needed none
_MOST_REMEMBERED = 256
_GONE = " (deleted)"


class Namer:
    """Resolves functions from the images' symbols, a bounded number of images per sample.

    No image is read while previous ones took more than CPU_NS_A_SAMPLE per sample: an image may have very
    many symbols. `cpu_ns`: CPU time of this thread.

    An image is read if it is world-readable or belongs to the owner of the table that names it: the agent
    must not disclose files that the table's owner cannot read.
    """

    def __init__(self, cpu_ns: Callable[[], int] = time.thread_time_ns) -> None:
        self._cpu_ns = cpu_ns
        self._left_ns = _MOST_CPU_NS
        self._left = 0
        self._lately: set[tuple[Module, int]] = set()

    def start_sample(self) -> None:
        """Starts a new sample."""
        self._left = IMAGES_A_SAMPLE
        self._left_ns = min(self._left_ns + CPU_NS_A_SAMPLE, _MOST_CPU_NS)

    def name(self, table: CallTable) -> None:
        """Fills in `table.names`; entries that remain None are resolved in a later sample.

        A function without a symbol is named by its offset in the file, `0x1a2b`; one outside all images
        belongs to the others of its program.
        """
        names = table.names
        names += [None] * (len(table.functions) - len(names))
        if table.head is None or None not in names:
            return
        program = table.head.program
        by_module: dict[int, list[int]] = {}
        for i, (_, module) in enumerate(table.functions):
            if names[i] is None:
                by_module.setdefault(module, []).append(i)
        for number, places in by_module.items():
            if number >= len(table.modules):
                for i in places:
                    names[i] = other_of(function_id(program, "", ""))
                continue
            image = table.modules[number]
            if not self._may_read(image, table.owner):
                continue
            started = self._cpu_ns()
            symbols = _symbols(image, table.owner)
            self._left_ns -= self._cpu_ns() - started
            file = image.path.removesuffix(_GONE).rpartition("/")[2]
            for i in places:
                offset = table.functions[i][0]
                name = symbols.lookup(offset) if symbols is not None else None
                names[i] = function_id(program, file, name or f"0x{offset:x}")

    def _may_read(self, image: Module, owner: int) -> bool:
        """True when the image is cached, or time remains for another one."""
        if self._left_ns <= 0:
            return False
        if (image, owner) not in self._lately:
            if not self._left:
                return False
            self._left -= 1
            if len(self._lately) >= _MOST_REMEMBERED:
                self._lately.clear()
            self._lately.add((image, owner))
        return True


def _symbols(module: Module, owner: int) -> Symbols | None:
    """Symbols of the mapped file; None if it is missing or must not be read."""
    path = module.path.removesuffix(_GONE)
    if not path.startswith("/") or "\0" in path:
        return None
    try:
        status = os.stat(path)  # noqa: PTH116 - a path as the process saw it
        if not stat.S_ISREG(status.st_mode) or not (status.st_mode & stat.S_IROTH or status.st_uid == owner):
            return None
        if status.st_ino != module.inode and not (module.build_id and build_id(path) == module.build_id):
            return None
        return symbols_of(path, status.st_ino)
    except (OSError, CollectError):
        return None
