"""CPU, memory and load of the node through psutil, and what the agent itself costs."""

import threading
from collections.abc import Iterator
from pathlib import Path

import psutil

from laggard_agent import own_cost
from laggard_agent.collectors.base import Now, Reading, read_file
from laggard_agent.collectors.recording import is_recorded
from laggard_common.errors import CollectError
from laggard_common.schema import Component, Field, FieldKind, FieldType

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

# psutil takes the root of /proc from a global; agents with roots of their own may share a process.
_psutil_root = threading.Lock()


class Host:
    """Reads `<procfs>/stat`, `meminfo` and `loadavg`; the agent's own cost is always of this process."""

    name = "host"

    def __init__(self, procfs: Path, now: Now) -> None:
        self._procfs = procfs
        self._now = now

    def read(self) -> Iterator[Reading]:
        """One row for the node. Raises CollectError."""
        at = self._now()
        if is_recorded():  # psutil reads these by itself
            for file in ("stat", "meminfo"):
                read_file(self._procfs / file)
        load = _load(self._procfs / "loadavg")
        own = (own_cost.cpu_ns() // 1000, own_cost.resident_bytes())
        yield Reading("host", FIELDS, at, COMPONENTS, [(*self._psutil_values(), *load, *own)])

    def _psutil_values(self) -> tuple[int | None, ...]:
        with _psutil_root:
            psutil.PROCFS_PATH = str(self._procfs)
            try:
                cpu = psutil.cpu_times()
                events = psutil.cpu_stats()
                memory = psutil.virtual_memory()
                spent = [_microseconds(getattr(cpu, name, None)) for name in _CPU]
            except OSError as exc:
                raise CollectError(str(exc.filename or self._procfs), exc.strerror or str(exc)) from exc
            except (LookupError, ValueError, TypeError, AttributeError, OverflowError) as exc:
                raise CollectError(str(self._procfs), f"stat or meminfo is not as expected: {exc!r}") from exc
        return (
            *spent,
            *(getattr(events, name) for name in _EVENTS),
            *(getattr(memory, name) for name in _MEMORY),
        )


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)


def _load(path: Path) -> tuple[float, float, float]:
    words = read_file(path).split()
    try:
        one, five, fifteen = (float(word) for word in words[:3])
    except ValueError as exc:
        raise CollectError(str(path), "not three load averages") from exc
    return one, five, fifteen
