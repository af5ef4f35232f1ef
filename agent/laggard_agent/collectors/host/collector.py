"""CPU, memory and load of the node, and the agent's own use, through psutil."""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import psutil

from laggard_agent.collectors.host import self_usage
from laggard_agent.collectors.interface import Context, Reading, is_recorded, read_file
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.rows import raise_first
from laggard_common.errors import CollectError
from laggard_common.trace_formats.kernel_text import MOST
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

_psutil_root = threading.Lock()  # psutil.PROCFS_PATH is global; agents with other roots may share the process

# psutil sets memory that it cannot find to 0 and warns; a false 0 is worse than an error.
warnings.filterwarnings("error", r".*memory stats couldn't be determined", RuntimeWarning)


@dataclass(frozen=True, slots=True)
class HostSettings:
    """`[host]` has no settings."""


@register
class Host:
    """Reads `<procfs>/stat` and `meminfo` through psutil; `loadavg` itself, where psutil knows no root.

    A failure of one affects no other.
    """

    name = "host"
    settings = HostSettings
    sources: ClassVar = {"host": FIELDS}

    def __init__(self, settings: HostSettings, context: Context) -> None:  # noqa: ARG002
        self._procfs = context.roots.procfs
        self._now = context.now

    def read(self) -> Iterator[Reading]:
        """One row for the node. Raises CollectError at the end, where values of a file are missing."""
        read_at_ns = self._now()
        row: list[int | float | None] = []
        failures = []
        for file, read, count in (
            ("stat", self._cpu, len(_CPU) + len(_EVENTS)),
            ("meminfo", self._memory, len(_MEMORY)),
            ("loadavg", self._load, len(_LOAD)),
        ):
            try:
                row += self._checked(file, read)
            except CollectError as exc:
                failures.append(exc)
                row += [None] * count
        row += (self_usage.cpu_ns() // 1000, self_usage.resident_bytes())
        yield Reading("host", FIELDS, read_at_ns, COMPONENTS, [row])
        raise_first(failures)

    def _checked(self, file: str, read: Callable[[], Row]) -> Row:
        """The values that `read` finds in `file`. Raises CollectError, which names the file."""
        path = self._procfs / file
        try:
            values = read()
            if not all(value is None or 0 <= value < MOST for value in values):
                raise ValueError("a number out of range")
        except OSError as exc:
            raise CollectError(str(path), exc.strerror or str(exc)) from exc
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeWarning) as exc:
            raise CollectError(str(path), f"not as expected: {exc}") from exc
        return values

    def _cpu(self) -> Row:
        with self._psutil("stat"):
            times, events = psutil.cpu_times(), psutil.cpu_stats()
        spent = (round(getattr(times, name) * 1e6) for name in _CPU)
        return (*spent, *(getattr(events, name) for name in _EVENTS))

    def _memory(self) -> Row:
        with self._psutil("meminfo"):
            memory = psutil.virtual_memory()
        return [getattr(memory, name) for name in _MEMORY]

    def _load(self) -> Row:
        one, five, fifteen = map(float, read_file(self._procfs / "loadavg").split()[:3])
        return (one, five, fifteen)

    @contextmanager
    def _psutil(self, file: str) -> Iterator[None]:
        """Points psutil to this root of /proc; `--dump` records `file`, as psutil opens files by itself."""
        if is_recorded():
            read_file(self._procfs / file)
        with _psutil_root:
            before, psutil.PROCFS_PATH = psutil.PROCFS_PATH, str(self._procfs)
            try:
                yield
            finally:
                psutil.PROCFS_PATH = before
