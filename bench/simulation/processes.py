"""Simulated hosts and their processes. A process can be killed anywhere, also within a write.

The code that runs is found by a context variable, which tasks, timers and executor jobs inherit.
"""

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bench.simulation.disk import SimulatedDisk

SECOND = 1_000_000_000
EPOCH_NS = 1_800_000_000 * SECOND
"""Wall time of all right clocks when a simulation starts."""


class Killed(BaseException):
    """The process ended within this operation."""


class Host:
    """A machine: clocks, a disk below `folder`, and a random generator of its own."""

    def __init__(self, name: str, folder: Path, seed: str, now: Callable[[], float]) -> None:
        self.name = name
        self.rng = random.Random(f"{seed}/{name}")
        self.disk = SimulatedDisk(folder, self.rng)
        self.boots = 1
        self.stepped_ns = 0
        """The wall clock minus the right time."""
        self._now = now
        self._started = now()

    def monotonic_ns(self) -> int:
        """Nanoseconds since the host's first start."""
        return round((self._now() - self._started + 100.0) * SECOND)

    def wall_ns(self) -> int:
        """The host's wall clock."""
        return EPOCH_NS + round((self._now() - self._started) * SECOND) + self.stepped_ns

    def now(self) -> float:
        """The right time, epoch seconds."""
        return (self.wall_ns() - self.stepped_ns) / SECOND

    @property
    def boot_id(self) -> str:
        """Name of the kernel's current boot."""
        return f"{self.name}-{self.boots}"


class Process:
    """A process of `host`: its tasks, and how it ends."""

    def __init__(self, name: str, host: Host) -> None:
        self.name = name
        self.host = host
        self.tasks: dict[asyncio.Task[Any], None] = {}
        """In the order of their start, in which a kill ends them."""
        self.alive = True
        self.killed_after: int | None = None
        """Number of operations on the disk after which the process is killed within the next one."""
        self.on_death: list[Callable[[], None]] = []
        """Called when it is killed, as the kernel closes its files and connections."""

    @property
    def doomed(self) -> bool:
        """Whether an operation to come kills it."""
        return self.killed_after is not None

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Runs `work` as the process's main task."""
        context = contextvars.copy_context()
        context.run(_process.set, self)
        return asyncio.get_running_loop().create_task(work, name=self.name, context=context)

    def kill(self) -> None:
        """Ends the process as SIGKILL does."""
        if not self.alive:
            return
        self.alive = False
        for each in self.on_death:
            each()
        for task in list(self.tasks):
            task.cancel()

    def operation(self) -> bool:
        """Counts an operation on the disk; whether the process is killed within it. Raises Killed later."""
        if not self.alive:
            raise Killed
        if self.killed_after is None:
            return False
        self.killed_after -= 1
        if self.killed_after > 0:
            return False
        self.killed_after = None
        self.kill()
        return True


class _Nobody(Process):
    """The simulation itself, which uses files directly."""

    def __init__(self) -> None:
        super().__init__("simulation", Host("simulation", Path("/nonexistent"), "", lambda: 0.0))


_NOBODY = _Nobody()
_process: contextvars.ContextVar[Process] = contextvars.ContextVar("process", default=_NOBODY)


def current(context: contextvars.Context | None = None) -> Process:
    """The process whose code runs, or that `context` belongs to."""
    return _process.get() if context is None else context.get(_process, _NOBODY)


def is_simulated() -> bool:
    """Whether the code of a simulated process runs."""
    return _process.get() is not _NOBODY
