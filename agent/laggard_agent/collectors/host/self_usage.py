"""What the agent itself costs the node."""

import os
import time
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")


def cpu_ns() -> int:
    """CPU time of this process since its start, user and system together, nanoseconds."""
    return time.process_time_ns()


def resident_bytes() -> int:
    """Resident memory of this process, shared pages included; 0 where /proc is not mounted."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
