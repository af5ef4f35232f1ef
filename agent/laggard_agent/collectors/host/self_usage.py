"""CPU time and memory of the agent's own process, through psutil."""

import psutil

_process = psutil.Process()  # keeps /proc as its root while a collector reads another


def cpu_seconds() -> float:
    """CPU time since the start of the process, user and system, in steps of a clock tick (10 ms)."""
    times = _process.cpu_times()
    return float(times.user + times.system)


def resident_bytes() -> int:
    """Resident memory, shared pages included."""
    return int(_process.memory_info().rss)
