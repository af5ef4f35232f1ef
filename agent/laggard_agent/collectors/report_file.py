"""A file with the output of a program that the agent may not run: root writes it, by a timer or by cron."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

from laggard_agent.collectors.interface import ABSENT, Context, Reading, regular_file, unreadable
from laggard_agent.collectors.rows import ColumnTable, Counters, OnceLogged, OwnRow, raise_first
from laggard_common.errors import CollectError
from laggard_common.wire.schema import Component, Field

MOST_SECONDS = 900
"""Age from which a report does not describe the present."""
_MOST_BYTES = 8 * 1024 * 1024

T = TypeVar("T")


class ReportFile(Generic[T]):
    """The file at `path`, parsed again when it was replaced; it may be absent."""

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


class ParsedReport(Protocol):
    """`odd`: lines that were not understood."""

    @property
    def odd(self) -> int: ...  # noqa: D102


R = TypeVar("R", bound=ParsedReport)


class ReportCollector(Generic[R]):
    """Base of a collector of one report: a source with rows, then one with the collector's own row.

    That row ends with the report's age, the number of files that failed and that of odd lines.
    """

    name: str
    sources: ClassVar[Mapping[str, Sequence[Field]]]

    def __init__(self, path: Path, report: ReportFile[R], context: Context) -> None:
        (source, fields), (own, own_fields) = self.sources.items()
        self._path = path
        self._report = report
        self._now = context.now
        self._rows = ColumnTable(source, fields)
        self._own = OwnRow(own, tuple(own_fields))
        self._nothing, self._odd = OnceLogged(self.name), OnceLogged(self.name)

    def read(self) -> Iterator[Reading]:
        """The rows of the report, then the collector's own. Raises CollectError after both."""
        at = self._now()
        failures: list[CollectError] = []
        report, age = self._report.read(at, failures)
        rows, own = self._told(report)
        if rows:
            yield self._rows.table(at, ((component, row, False) for component, row in rows))
        yield self._own.of(at, *own, age, len(failures), report.odd)
        self._nothing.update(age is None and not failures, f"no report {self._path}")
        self._odd.update(bool(report.odd), f"{report.odd} lines not understood")
        raise_first(failures)

    def _told(self, report: R) -> tuple[Sequence[tuple[Component, Counters]], Sequence[int | None]]:
        """The rows of a report, and the values that the collector's own row begins with."""
        raise NotImplementedError
