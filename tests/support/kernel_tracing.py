"""Whether this machine lets tests record with tracefs."""

import os

from laggard_aggregator.layers.record.tracefs import mounted
from laggard_common.errors import LaggardError


def can_trace() -> bool:
    """True where an instance can be made: as root, with tracefs and the tracepoints of system calls."""
    if os.geteuid() != 0:
        return False
    try:
        with mounted() as root:
            return (root / "instances").is_dir() and (root / "events" / "syscalls").is_dir()
    except (LaggardError, OSError):
        return False
