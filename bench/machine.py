"""What a figure was measured on, in words that fit under a table."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def machine(*packages: str) -> str:
    """One line: date, CPU model and cores, memory, kernel, Python, and the versions of `packages`."""
    facts = [
        datetime.now(UTC).date().isoformat(),
        f"{cpu_model()}, {cores()} cores",
        f"{memory_gib():.0f} GiB",
        f"Linux {platform.release().split('-')[0]}",
        f"Python {platform.python_version()}",
        *(f"{package} {_version(package)}" for package in packages),
    ]
    return "; ".join(facts)


def cores() -> int:
    """How many cores this process may run on."""
    return len(os.sched_getaffinity(0))


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The model name of the first CPU, or the architecture where the kernel names none."""
    for line in cpuinfo.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def memory_gib(meminfo: Path = Path("/proc/meminfo")) -> float:
    """All of the machine's memory, GiB."""
    kib = next(line.split()[1] for line in meminfo.read_text().splitlines() if line.startswith("MemTotal:"))
    return int(kib) / 2**20


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
