"""The journal on disk: numbered segments of entries in order. Synchronous.

A snapshot has the number of the segment that follows it; segments before the oldest snapshot kept are
deleted.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from laggard_aggregator.log import journal_codec
from laggard_aggregator.log.entries import BatchEntry, LogEntry
from laggard_common import segment_log as segments
from laggard_common.errors import SpoolError, StateError

_log = logging.getLogger(__name__)

SUFFIX = ".journal"
SEGMENT_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class _Segment:
    number: int
    path: Path
    size_bytes: int


class Journal:
    """The journal in `directory`, at most about `max_bytes` long. One thread at a time.

    `rotate` before the first `append`: segments of an earlier process are only read.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        """Raises StateError when the directory cannot be listed."""
        self._directory = directory
        self._max_bytes = max_bytes
        self._writer: segments.SegmentWriter | None = None
        self._segments: list[_Segment] = []
        try:
            found = sorted(p for p in directory.glob(f"*{SUFFIX}") if p.stem.isdecimal())
            for path in found:
                self._segments.append(_Segment(int(path.stem), path, path.stat().st_size))
        except OSError as exc:
            raise StateError(str(directory), exc.strerror or str(exc)) from exc
        self.next_number = self._segments[-1].number + 1 if self._segments else 1

    @property
    def size_bytes(self) -> int:
        """Size of all segments."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segments(self) -> int:
        """Number of segments."""
        return len(self._segments)

    def rotate(self) -> int:
        """Starts a new segment and returns its number, which is not reused after a StateError."""
        self.close()
        number, self.next_number = self.next_number, self.next_number + 1
        path = self._directory / f"{number:012d}{SUFFIX}"
        try:
            self._writer = segments.SegmentWriter(path)
            self._segments.append(_Segment(number, path, 0))
            self._writer.append_all([journal_codec.header()])
            sync_folder(self._directory)
        except (SpoolError, OSError) as exc:
            self.close()
            raise _state_error(path, exc) from exc
        self._segments[-1].size_bytes = self._writer.size_bytes
        return number

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Appends and fsyncs `entries`, in a new segment if this one is full. Raises StateError.

        It fails once the journal has `max_bytes`.
        """
        if self._writer is None:
            raise StateError(str(self._directory), "the journal is not open")
        if self.size_bytes >= self._max_bytes:
            raise StateError(str(self._directory), f"the journal has journal_max_bytes ({self._max_bytes})")
        if self._writer.size_bytes >= SEGMENT_BYTES:
            self.rotate()
        segment = self._segments[-1]
        try:
            self._writer.append_all(map(journal_codec.encode, entries))
            self._writer.sync()
        except SpoolError as exc:
            raise _state_error(segment.path, exc) from exc
        finally:
            segment.size_bytes = self._writer.size_bytes

    def entries(self, number: int) -> Iterator[LogEntry]:
        """The entries from segment `number` on.

        A torn or damaged record ends its segment, with a WARNING. A crash tears the last segment only. Raises
        StateError when a file cannot be read.
        """
        following = [segment for segment in self._segments if segment.number >= number]
        returned = set(_returned(following))
        for segment in following:
            end = len(segments.MAGIC)
            try:
                for record in segments.scan(segment.path):
                    entry = journal_codec.decode(record, str(segment.path))
                    end = record.end
                    if isinstance(entry, BatchEntry) and entry.lsn in returned:
                        entry = replace(entry, accepted=False)
                    if entry is not None:
                        yield entry
            except StateError as exc:
                _log.warning("journal: %s", exc)
            except SpoolError as exc:
                raise _state_error(segment.path, exc) from exc
            if end < segment.size_bytes:
                _log.warning(
                    "journal: %s: %d bytes at the end are torn or damaged",
                    segment.path,
                    segment.size_bytes - end,
                )

    def release(self, number: int) -> None:
        """Deletes the segments before `number`. Raises StateError."""
        while self._segments and self._segments[0].number < number:
            first = self._segments[0].path
            try:
                first.unlink(missing_ok=True)
            except OSError as exc:
                raise _state_error(first, exc) from exc
            del self._segments[0]

    def close(self) -> None:
        """Closes the open segment; `append` needs a `rotate` then."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _returned(following: Sequence[_Segment]) -> Iterator[int]:
    """The lsns of batches that earlier versions recorded as accepted, and took back with a RETURN record."""
    for segment in following:
        with suppress(StateError, SpoolError):  # reported when the entries are read
            for record in segments.scan(segment.path):
                if record.type == journal_codec.RecordType.RETURN:
                    yield journal_codec.returned_lsn(record, str(segment.path))


def sync_folder(folder: Path) -> None:
    """Waits until the names in `folder` are on the disk itself. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _state_error(path: Path, exc: SpoolError | OSError) -> StateError:
    if isinstance(exc, SpoolError):
        return StateError(exc.path, exc.reason)
    return StateError(str(path), exc.strerror or str(exc))
