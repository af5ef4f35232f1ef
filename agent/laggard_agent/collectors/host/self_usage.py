"""CPU time and memory of the agent's own process."""

import time

import psutil

_process = psutil.Process()  # keeps /proc as its root while a collector reads another


def cpu_ns() -> int:
    """CPU time since the start of the process, user and system. psutil counts it in steps of 10 ms only."""
    return time.process_time_ns()


def resident_bytes() -> int:
    """Resident memory, shared pages included."""
    return int(_process.memory_info().rss)
