"""Byte layout of a traced process's table: native/layout.h, described in README.md.

A table is another user's file with arbitrary contents: values out of bounds are rejected.
"""

import struct
from typing import NamedTuple

from laggard_common.errors import CollectError

MAGIC = b"LAGTRACE"
VERSION = 1
HEADER_BYTES = 4096
SLOT_HEAD_BYTES = 64
COUNTER_BYTES = 16

_HEAD = struct.Struct("=8sIIIIIIQQQ128sIIIIQQ")
_MODULE = struct.Struct("=QII32s464s")
_FUNCTION = struct.Struct("=QII")
SLOT = struct.Struct("=8xQQQQ")
"""Counters in the header of a slot, as in `Slot`."""

HEAD_BYTES = _HEAD.size
MODULE_BYTES = _MODULE.size
FUNCTION_BYTES = _FUNCTION.size

_MOST_MODULES = 1024
_MOST_FUNCTIONS = 32768
_MOST_SLOTS = 1024
_FUNCTION_HELD_BYTES = 512  # with its name and sums
_MODULE_HELD_BYTES = 1024
_TICKS_PER_SECOND = range(1_000_000, 100_000_000_000)


class TableHead(NamedTuple):
    """Header of a table, as in the file: its process, and the capacities and used parts of the table.

    `start_ticks`: when the process started, as field 22 of /proc/PID/stat. `pid_namespace`: the inode of the
    namespace of `pid`, 0 if unknown.
    """

    magic: bytes
    version: int
    complete: int
    pid: int
    module_capacity: int
    function_capacity: int
    slot_capacity: int
    start_ticks: int
    pid_namespace: int
    ticks_per_second: int
    program_bytes: bytes
    modules: int
    functions: int
    slots: int
    unused: int
    threads_without_slot: int
    functions_left_out: int

    @property
    def program(self) -> str:
        """Name of the program."""
        return _text(self.program_bytes)

    @property
    def identity(self) -> tuple[int | bytes, ...]:
        """The part that stays the same while the process runs."""
        return self[3:11]

    @property
    def functions_at(self) -> int:
        """Offset of the functions in the file."""
        return HEADER_BYTES + self.module_capacity * MODULE_BYTES

    @property
    def slots_at(self) -> int:
        """Offset of the slots in the file."""
        return (self.functions_at + self.function_capacity * FUNCTION_BYTES + 63) // 64 * 64

    @property
    def slot_stride(self) -> int:
        """Bytes from one slot to the next."""
        return SLOT_HEAD_BYTES + self.function_capacity * COUNTER_BYTES

    @property
    def count_bytes(self) -> int:
        """Used bytes of all slots."""
        return self.slots * (SLOT_HEAD_BYTES + self.functions * COUNTER_BYTES)

    @property
    def held_bytes(self) -> int:
        """Approximate memory for the parsed table."""
        return self.count_bytes + self.functions * _FUNCTION_HELD_BYTES + self.modules * _MODULE_HELD_BYTES

    @property
    def file_bytes(self) -> int:
        """Length of the whole table."""
        return self.slots_at + self.slot_capacity * self.slot_stride


class Module(NamedTuple):
    """An image with functions: its path in the process's view."""

    inode: int
    build_id: bytes
    path: str


class Slot(NamedTuple):
    """Header of a slot; its counters are since the start of the process."""

    deep: int = 0
    untimed: int = 0
    abandoned: int = 0
    unmatched: int = 0


def parse_head(data: bytes, path: str) -> TableHead | None:
    """Parses the first HEAD_BYTES of a table; None while it is being created. Raises CollectError."""
    if len(data) < HEAD_BYTES or data == bytes(len(data)):
        return None
    head = TableHead(*_HEAD.unpack_from(data))
    if head.magic != MAGIC:
        raise CollectError(path, "not a table of liblaggardtrace.so")
    if head.version != VERSION:
        raise CollectError(path, f"layout {head.version}, this agent reads {VERSION}")
    if not head.complete:
        return None
    limits = (
        (head.modules, head.module_capacity, _MOST_MODULES),
        (head.functions, head.function_capacity, _MOST_FUNCTIONS),
        (head.slots, head.slot_capacity, _MOST_SLOTS),
    )
    fits = all(0 < capacity <= most and used <= capacity for used, capacity, most in limits)
    if not fits or not 0 < head.pid < 2**31 or head.ticks_per_second not in _TICKS_PER_SECOND:
        raise CollectError(path, "a table whose head cannot be right")
    return head


def parse_modules(data: bytes) -> list[Module]:
    """Parses the complete modules in `data`."""
    whole = data[: len(data) // MODULE_BYTES * MODULE_BYTES]
    return [
        Module(inode, build_id[: min(id_bytes, 32)], _text(path))
        for inode, id_bytes, _, build_id, path in _MODULE.iter_unpack(whole)
    ]


def parse_functions(data: bytes) -> list[tuple[int, int]]:
    """Parses the complete functions in `data`: offset in the file and module number."""
    whole = data[: len(data) // FUNCTION_BYTES * FUNCTION_BYTES]
    return [(offset, module) for offset, module, _ in _FUNCTION.iter_unpack(whole)]


def _text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode("utf-8", "replace")
