"""Real block devices to sample: loop devices on sparse files, some of them busy."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.testbed.luns import TestbedError, attach, process

FIRST = 1000  # far from the other testbeds
SIZE_BYTES = 1 << 20
MODULE = "bench.agent_cost.load"


@contextmanager
def loop_devices(count: int, folder: Path) -> Iterator[tuple[str, ...]]:
    """Yield the kernel names of `count` new loop devices on files in `folder`. Raises TestbedError."""
    with ExitStack() as stack:
        files = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="devices-", dir=folder)))
        names = tuple(f"loop{FIRST + i}" for i in range(count))
        for name in names:
            backing = files / name
            with backing.open("wb") as file:
                file.truncate(SIZE_BYTES)
            attach(stack, name, backing)
        yield names


@contextmanager
def load_on(names: Sequence[str]) -> Iterator[None]:
    """Keep the counters of these devices changing; raises TestbedError when the load ends by itself."""
    with process([sys.executable, "-m", MODULE, *(f"/dev/{name}" for name in names)]) as load:
        yield
        if load.poll() is not None:
            raise TestbedError(f"{MODULE} ended with {load.returncode}")
