"""CPU, memory and load of the node, and the agent's own use."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from laggard_agent.collectors.host import self_usage
from laggard_agent.collectors.interface import Context, KernelFile, Reading
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.rows import raise_first
from laggard_common.errors import CollectError
from laggard_common.trace_formats.kernel_text import MOST, number, numbers
from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Component, Field, FieldKind, FieldType

_CPU = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_EVENTS = ("ctx_switches", "interrupts", "soft_interrupts")
_MEMORY = ("total", "available", "free", "buffers", "cached", "shared")
_LOAD = ("load_1", "load_5", "load_15")

FIELDS = (
    *(Field(f"cpu_{name}_us", unit="us") for name in _CPU),
    *(Field(name) for name in _EVENTS),
    *(Field(f"memory_{name}_bytes", FieldKind.GAUGE, "bytes") for name in _MEMORY),
    *(Field(name, FieldKind.GAUGE, type=FieldType.F64) for name in _LOAD),
    Field("agent_cpu_us", unit="us"),
    Field("agent_resident_bytes", FieldKind.GAUGE, "bytes"),
)
COMPONENTS = (Component("host", "host"),)

_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
_TIMES = re.compile(rb"cpu +([ \d]+)\n")
# Behind a line's end, which is found faster than a line's begin: the line of interrupts is long.
_COUNTS = re.compile(rb"\n(ctxt|intr|softirq) (\S+)(?=\s)")
_SIZES = re.compile(rb"\n(MemTotal|MemAvailable|MemFree|Buffers|Cached|Shmem|SReclaimable): +(\S+) kB(?=\n)")


@dataclass(frozen=True, slots=True)
class HostSettings:
    """`[host]` has no settings."""


@register
class Host:
    """Reads `<procfs>/stat`, `meminfo` and `loadavg`; a failure of one affects no other."""

    name = "host"
    settings = HostSettings
    sources: ClassVar = {"host": FIELDS}

    def __init__(self, settings: HostSettings, context: Context) -> None:  # noqa: ARG002
        self._now = context.now
        procfs = context.roots.procfs
        self._parts = (
            (KernelFile(procfs / "stat"), parse_stat, len(_CPU) + len(_EVENTS)),
            (KernelFile(procfs / "meminfo"), parse_meminfo, len(_MEMORY)),
            (KernelFile(procfs / "loadavg"), parse_loadavg, len(_LOAD)),
        )

    def read(self) -> Iterator[Reading]:
        """One row for the node. Raises CollectError at the end, where values of a file are missing."""
        read_at_ns = self._now()
        row: list[int | float | None] = []
        failures = []
        for file, parse, count in self._parts:
            try:
                row += _values(file, parse)
            except CollectError as exc:
                failures.append(exc)
                row += [None] * count
        row += (self_usage.cpu_ns() // 1000, self_usage.sampled_resident_bytes())
        yield Reading("host", FIELDS, read_at_ns, COMPONENTS, [row])
        raise_first(failures)


def parse_stat(data: bytes) -> Row:
    """CPU times in microseconds and numbers of events in /proc/stat. Raises ValueError.

    An event whose line is missing is None.
    """
    times = _TIMES.match(data)
    ticks = times and numbers(times[1].split())
    if not ticks or len(ticks) < len(_CPU):
        raise ValueError(f"no {len(_CPU)} times of all CPUs in its first line")
    events = _numbers(_COUNTS, data)
    return (
        *(spent * _TICK_US for spent in ticks[: len(_CPU)]),
        *(events.get(key) for key in (b"ctxt", b"intr", b"softirq")),
    )


def parse_meminfo(data: bytes) -> Row:
    """Sizes in /proc/meminfo, bytes. Raises ValueError.

    Available memory is None on kernels before 3.14, which do not count it. Cached memory includes reclaimable
    slabs, as in `free`.
    """
    kib = _numbers(_SIZES, b"\n" + data)
    needed = (b"MemTotal", b"MemFree", b"Buffers", b"Cached", b"SReclaimable", b"Shmem")
    for key in needed:
        if key not in kib:
            raise ValueError(f"no {key.decode()} in kB")
    total, free, buffers, cached, slabs, shared = (kib[key] * 1024 for key in needed)
    available = kib[b"MemAvailable"] * 1024 if b"MemAvailable" in kib else None
    return (total, available, free, buffers, cached + slabs, shared)


def parse_loadavg(data: bytes) -> Row:
    """The three averages in /proc/loadavg. Raises ValueError."""
    one, five, fifteen = map(float, data.split()[:3])
    return (one, five, fifteen)


def _values(file: KernelFile, parse: Callable[[bytes], Row]) -> Row:
    """The values that `parse` gets from `file`. Raises CollectError, which names the file."""
    data = file.read()
    try:
        values = parse(data)
        known = [value for value in values if value is not None]
        if not (min(known) >= 0 and sum(known) < MOST):  # faster than each by itself
            raise ValueError("a number out of range")
    except ValueError as exc:
        raise CollectError(str(file.path), f"not as expected: {exc}") from exc
    return values


def _numbers(pattern: re.Pattern[bytes], data: bytes) -> dict[bytes, int]:
    """The numbers in `data` by key. Raises ValueError for what is none."""
    words = dict(pattern.findall(data))
    values = numbers(tuple(words.values())) if words else ()
    if values is None:
        odd = next(key for key, word in words.items() if number(word) is None)
        raise ValueError(f"{odd.decode()} is no number")
    return dict(zip(words, values, strict=True))
