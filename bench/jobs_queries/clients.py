"""The processes that ask; apart, as a process of `spawn` cannot import a package's `__main__`."""

import random
import time
from multiprocessing.synchronize import Barrier

from bench.jobs_queries.questions import Asker

_barrier: Barrier


def join(barrier: Barrier) -> None:
    """Keeps the barrier of all clients."""
    global _barrier  # noqa: PLW0603 - inherited by a process, it cannot be sent with a task
    _barrier = barrier


def one(asker: Asker, name: str, seed: int) -> float:
    """Seconds of one question; all clients begin together."""
    asker.chance = random.Random(seed)
    _barrier.wait()
    began = time.perf_counter()
    asker.ask(name)
    return time.perf_counter() - began
