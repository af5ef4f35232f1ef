"""/proc/stat, meminfo and loadavg: CPU, memory and load of the node; and what the agent itself costs.

As proc_stat(5), proc_meminfo(5) and proc_loadavg(5) have it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from laggard_agent.collectors.capture import Capture, Captures
from laggard_agent.collectors.host import self_usage
from laggard_agent.collectors.interface import Now, Reading
from laggard_common.errors import CollectError
from laggard_common.wire.schema import Component, Field, FieldKind, FieldType

_CPU = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_LEAST_CPU = 4  # of the oldest kernels
_EVENTS = {"ctx_switches": b"\nctxt ", "interrupts": b"\nintr ", "soft_interrupts": b"\nsoftirq "}
_MEMORY = {
    "total": (b"\nMemTotal:",),
    "available": (b"\nMemAvailable:",),
    "free": (b"\nMemFree:",),
    "buffers": (b"\nBuffers:",),
    "cached": (b"\nCached:", b"\nSReclaimable:"),  # as free(1) counts it
    "shared": (b"\nShmem:",),
}
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
_KIB = 1024
_MOST = 2**64
_MOST_DIGITS = 20


def parse_stat(data: bytes) -> tuple[int | None, ...]:
    """CPU time of all CPUs in microseconds, then events, None for what the kernel does not count.

    Raises ValueError for anything else than such a file.
    """
    name, *ticks = data.partition(b"\n")[0].split()
    if name != b"cpu" or len(ticks) < _LEAST_CPU:
        raise ValueError("no line of all CPUs")
    spent: list[int | None] = [_unsigned(word) * _TICK_US for word in ticks[: len(_CPU)]]
    spent += [None] * (len(_CPU) - len(spent))
    return _in_range((*spent, *(_number(data, key) for key in _EVENTS.values())))


def parse_meminfo(data: bytes) -> tuple[int | None, ...]:
    """Bytes, None for what the kernel does not tell. Raises ValueError for anything else than such a file."""
    text = b"\n" + data
    found = [[_number(text, key, b"kB") for key in keys] for keys in _MEMORY.values()]
    if found[0] == [None]:
        raise ValueError("no total")
    values = (None if first is None else first + sum(filter(None, more)) for first, *more in found)
    return _in_range(tuple(None if value is None else value * _KIB for value in values))


def parse_loadavg(data: bytes) -> tuple[float, float, float]:
    """The load averages of 1, 5 and 15 minutes. Raises ValueError for anything else than such a file."""
    one, five, fifteen = (float(word) for word in data.split()[:3])
    if not all(0 <= load < float("inf") for load in (one, five, fifteen)):
        raise ValueError("no load average")
    return one, five, fifteen


class Host:
    """Reads `<procfs>/stat`, `meminfo` and `loadavg`; the agent's own cost is always of this process."""

    name = "host"

    def __init__(self, procfs: Path, now: Now) -> None:
        self._paths = [procfs / file for file in ("stat", "meminfo", "loadavg")]
        self.captures = Captures(self._paths, now, measures_cpu=True)

    def read(self) -> Iterator[Reading]:
        """One row for the node. Raises CollectError."""
        return self.interpret(self.captures.take())

    def interpret(self, capture: Capture) -> Iterator[Reading]:
        """As `read`, of what was read at another time; but for the agent's memory, which is that of now."""
        row: list[int | float | None] = []
        for path, file, parse in zip(self._paths, capture.files, _PARSERS, strict=True):
            try:
                row += parse(file.text())
            except ValueError as exc:
                raise CollectError(str(path), f"not as expected: {exc}") from exc
        row += [capture.cpu_ns // 1000, self_usage.resident_bytes()]
        yield Reading("host", FIELDS, capture.files[0].at_ns, COMPONENTS, [row])


_PARSERS = (parse_stat, parse_meminfo, parse_loadavg)


def _number(data: bytes, key: bytes, unit: bytes = b"") -> int | None:
    """What stands behind `key`, None where that is not. Raises ValueError for no number of that unit."""
    at = data.find(key)
    if at < 0:
        return None
    at += len(key)
    line = data[at : at + 4 * _MOST_DIGITS].partition(b"\n")[0].split(None, 2)
    if not line or (unit and line[1:] != [unit]):
        raise ValueError(f"{key.strip().decode()} is not a number {unit.decode()}".rstrip())
    return _unsigned(line[0])


def _unsigned(word: bytes) -> int:
    if not word.isdigit():
        raise ValueError(f"{word[:_MOST_DIGITS].decode('ascii', 'replace')!r} is not a number")
    return int(word[: _MOST_DIGITS + 1])


def _in_range(values: tuple[int | None, ...]) -> tuple[int | None, ...]:
    if any(value is not None and value >= _MOST for value in values):
        raise ValueError("a number of more than 64 bits")
    return values
