"""Checks that the process of a table still runs."""

import os
import re
from pathlib import Path

from laggard_agent.collectors.interface import ABSENT, read_file
from laggard_common.errors import CollectError

_START = 22 - 3  # index among the fields after the name, the first of which is field 3 (man 5 proc)
_MOST_STAT_BYTES = 4096
_NAMESPACE = re.compile(r"pid:\[(\d{1,20})\]", re.ASCII)


class Processes:
    """Processes of this agent's PID namespace, below `procfs`."""

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        self._namespace: int | None = None

    def is_ours(self, pid_namespace: int) -> bool:
        """True when pids of that namespace are valid here; a container's are not."""
        if self._namespace is None:
            try:
                link = str((self._procfs / "self/ns/pid").readlink())
            except OSError:
                return False  # a copy of another host's tree
            match = _NAMESPACE.fullmatch(link)
            self._namespace = int(match[1]) if match else 0
        return pid_namespace == self._namespace

    def has_ended(self, pid: int, start_ticks: int) -> bool:
        """True when the process that started then has certainly ended.

        False when /proc hides it (`hidepid`).
        """
        try:
            stat = read_file(self._procfs / str(pid) / "stat", _MOST_STAT_BYTES)
        except CollectError as exc:
            cause = exc.__cause__
            return isinstance(cause, OSError) and cause.errno in ABSENT and not _is_there(pid)
        fields = stat.rpartition(b")")[2].split()
        return len(fields) > _START and fields[_START].isdigit() and int(fields[_START]) != start_ticks


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
