"""A file with the output of a program that the agent may not run: root writes it, by a timer or by cron."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from laggard_agent.collectors.interface import ABSENT, regular_file, unreadable
from laggard_common.errors import CollectError

MOST_SECONDS = 900
"""An older report is none of the present."""
_MOST_BYTES = 8 * 1024 * 1024

T = TypeVar("T")


class ReportFile(Generic[T]):
    """The file at `path`, parsed again when it is another one; it may be absent."""

    def __init__(self, path: Path, parse: Callable[[bytes], T], most_seconds: int = MOST_SECONDS) -> None:
        self._path = path
        self._most_seconds = most_seconds
        self._parse = parse
        self._mark: tuple[int, ...] = ()
        self._parsed = parse(b"")

    def read(self, at_ns: int, failures: list[CollectError]) -> tuple[T, int | None]:
        """The values of the report, and its age in seconds.

        Without a report it is that of an empty one and the age None; so is one that cannot be read, which is
        one of `failures`. One older than `most_seconds` says nothing, and has its age.
        """
        try:
            with regular_file(self._path) as (fd, status):
                mark = (status.st_ino, status.st_mtime_ns, status.st_size)
                if mark != self._mark:
                    self._parsed = self._parse(os.read(fd, _MOST_BYTES))
                    self._mark = mark
                age = max(0, at_ns - status.st_mtime_ns) // 10**9
                return (self._parsed if age <= self._most_seconds else self._parse(b"")), age
        except OSError as exc:
            if exc.errno not in ABSENT:
                failures.append(unreadable(self._path, exc))
        except CollectError as exc:
            failures.append(exc)
        self._parsed, self._mark = self._parse(b""), ()
        return self._parsed, None
