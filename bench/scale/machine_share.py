"""What processes take of the machine: CPU time from schedstat, resident memory."""

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one process: CPU seconds since its start, user and system together, and resident MiB."""

    cpu_seconds: float
    resident_mib: float


def usage(pid: int) -> Usage:
    """Of a process and its threads; zeros when it is gone. Threads that have ended count to a clock tick."""
    process = Path("/proc") / str(pid)
    try:
        running = [int(task.read_text().split()[0]) for task in process.glob("task/*/schedstat")]
        stat = (process / "stat").read_text().rpartition(")")[2].split()
        pages = int((process / "statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return Usage(0.0, 0.0)
    ticks = (int(stat[11]) + int(stat[12])) / _TICKS
    cpu = sum(running) / 1e9
    return Usage(max(cpu, ticks - 1.0), pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


def machine_busy_seconds() -> float:
    """CPU seconds that anybody on this machine has used, over all cores."""
    user, nice, system, _, _, irq, softirq, *_ = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / _TICKS
