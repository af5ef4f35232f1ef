"""The ingest journal on disk, and the group commit through which the event loop appends to it."""

import asyncio
import errno
import itertools
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from laggard_aggregator.log import journal_codec
from laggard_aggregator.log.entries import BatchEntry, EntryTimes, LogEntry, SchemaEntry, WindowClose
from laggard_common import segment_log
from laggard_common.errors import LaterVersionError, SpoolError, StateError

_log = logging.getLogger(__name__)

SUFFIX = ".journal"
SEGMENT_BYTES = 64 * 1024 * 1024
GROUP_SECONDS = 0.02
MAX_WAITING_BYTES = 64 * 1024 * 1024
_MEDIUM = (errno.EIO, errno.EUCLEAN, errno.EBADMSG)
"""Errors of reading a damaged disk or file system."""
_ENTRY_BYTES = 200
"""Memory of an entry besides its message."""
MAX_TIMES = 2**18


class Journal:
    """The journal in `directory`, at most about `max_bytes` long. One thread at a time.

    `rotate` before the first `append`: segments of an earlier process are only read.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        """Raises StateError when the directory cannot be listed."""
        self._directory = directory
        self._max_bytes = max_bytes
        self._writer: segment_log.SegmentWriter | None = None
        self.damaged = 0
        """Faults that `entries` found, each with a WARNING."""
        self.damaged_at_end = 0
        """Batches and closes among them after the last entry, where no later lsn shows the gap."""
        with state_errors(directory):
            paths = segment_log.files(directory, SUFFIX)
            numbers = sorted(int(path.stem) for path in paths if path.stem.isdecimal())
            self._sizes = {number: self._path(number).stat().st_size for number in numbers}  # by segment
        self.next_number = max(self._sizes, default=0) + 1

    @property
    def size_bytes(self) -> int:
        """Size of all segments."""
        return sum(self._sizes.values())

    @property
    def is_behind_a_snapshot(self) -> bool:
        """Whether earlier segments were deleted, as a snapshot had their entries."""
        return min(self._sizes, default=1) > 1

    def rotate(self) -> int:
        """Starts a new segment and returns its number, which is not reused after a StateError."""
        self.close()
        number, self.next_number = self.next_number, self.next_number + 1
        path = self._path(number)
        try:
            with state_errors(path):
                self._writer = segment_log.SegmentWriter(path)
                self._sizes[number] = 0
                self._writer.append_all([journal_codec.header()])
                self._writer.sync()  # so that a segment without it is damaged
                segment_log.sync_path(self._directory)
        except StateError:
            self.close()
            raise
        self._sizes[number] = self._writer.size_bytes
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
        try:
            with state_errors(self._directory):
                self._writer.append_all(map(journal_codec.encode, entries))
                self._writer.sync()
        finally:
            self._sizes[self.next_number - 1] = self._writer.size_bytes

    def entries(self, number: int) -> Iterator[LogEntry]:
        """The entries from segment `number` on, before which a snapshot was taken.

        Damaged records are left out, with a WARNING. A crash tears the end of a segment. Raises StateError
        when a file cannot be read for another reason than its medium, LaterVersionError on a segment of a
        later version.
        """
        following = {self._path(segment): size for segment, size in self._sizes.items() if segment >= number}
        if number and following.get(self._path(number), 0) <= len(segment_log.MAGIC):
            self._damage("%s is missing or empty", self._path(number))
        returned = set(_returned(following))
        for path, size in following.items():
            try:
                yield from self._read(path, size, returned)
            except StateError as exc:
                if not is_damage(exc):
                    raise
                self._damage("%s", exc)

    def times(self) -> EntryTimes:
        """The times of up to MAX_TIMES batches and closes; damaged ones are left out."""
        times = EntryTimes({}, {})
        for entry in itertools.islice(self._readable(), MAX_TIMES):
            if isinstance(entry, BatchEntry):
                times.batches[entry.lsn] = entry.received_ns
            else:
                times.closes[entry.lsn] = entry.closed_at
        return times

    def _readable(self) -> Iterator[BatchEntry | WindowClose]:
        for path in map(self._path, self._sizes):
            with suppress(StateError), state_errors(path):  # reported when the entries are read
                for record in segment_log.scan(path):
                    entry = journal_codec.decode(record, str(path))
                    if isinstance(entry, BatchEntry | WindowClose):
                        yield entry

    def _read(self, path: Path, size: int, returned: Collection[int]) -> Iterator[LogEntry]:
        end, left_out = len(segment_log.MAGIC), 0
        with state_errors(path):
            for record in segment_log.scan(path):
                left_out, end = left_out + record.offset - end, record.end
                try:
                    entry = journal_codec.decode(record, str(path))
                except LaterVersionError:
                    raise
                except StateError as exc:
                    self._damage("%s", exc)
                    return
                if isinstance(entry, BatchEntry) and entry.lsn in returned:
                    entry = replace(entry, accepted=False)
                if entry is not None:
                    self.damaged_at_end = 0
                    yield entry
            types = segment_log.damaged_at_end(path, end)
        if left_out:
            self._damage("%s: %d damaged bytes are left out", path, left_out)
        if types:
            self._damage("%s: %d damaged records at the end are left out", path, len(types))
            self.damaged_at_end += sum(kind not in journal_codec.WITHOUT_LSN for kind in types)
        elif end < size:
            _log.warning("journal: %s: %d bytes at the end are torn or damaged", path, size - end)

    def _damage(self, message: str, *values: object) -> None:
        self.damaged += 1
        _log.warning("journal: " + message, *values)

    def release(self, number: int) -> str:
        """Deletes the segments before `number`; about the first that stays, empty when all are gone."""
        old = [segment for segment in self._sizes if segment < number]
        problem = delete_all(map(self._path, old))
        for segment in old:
            if not os.path.lexists(self._path(segment)):
                del self._sizes[segment]
        return problem

    def close(self) -> None:
        """Closes the open segment; `append` needs a `rotate` then."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:012d}{SUFFIX}"


@dataclass(frozen=True, slots=True)
class Durability:
    """State of journal and snapshots.

    `whole`: batches accepted now will be acknowledged after their group commit. `failures`: of writing
    either. `snapshot_at`: time of the latest snapshot, epoch seconds, NaN before the first.
    `snapshot_seconds`: time that it blocked ingest. `damaged_files`: files of the state that the last start
    found damaged or missing; `lost_batches`: entries of the journal that it could not read.
    """

    whole: bool
    journal_bytes: int
    snapshot_bytes: int
    snapshot_at: float
    snapshot_seconds: float
    failures: int
    damaged_files: int = 0
    lost_batches: int = 0


class GroupCommit:
    """Group commits to `journal`. `durable(lsn)` is called whenever the durable lsn grows.

    Nothing is durable before the first `checkpointed`: the journal alone lacks the state before it. After a
    failure it lacks entries, and gets further ones only once a snapshot has those: a restart would replay
    them without those.
    """

    def __init__(self, journal: Journal, durable: Callable[[int], None], last_lsn: int) -> None:
        self.failures = 0
        self.bytes = 0
        self._journal = journal
        self._durable = durable
        self.durable_lsn = last_lsn
        """Everything up to this lsn is durable."""
        self._waiting: list[LogEntry] = []
        self._waiting_bytes = 0
        self._written = last_lsn
        self._broken = True
        self._warned = False
        self._breaks = 0
        self._whole_since = -1  # the break that a snapshot has covered
        self._has_waiting = asyncio.Event()
        self._progress = asyncio.Event()
        self._busy = asyncio.Lock()

    @property
    def whole(self) -> bool:
        """Whether an entry recorded now will be durable after the next group commit."""
        return not self._broken and self._whole_since == self._breaks

    @property
    def lacks_entries(self) -> bool:
        """Whether the journal failed and no snapshot has covered it since."""
        return self._breaks > 0 and self._whole_since != self._breaks

    def record(self, entry: LogEntry) -> None:
        """Adds an entry to the next group commit; never waits."""
        if self._broken:
            return
        size = _ENTRY_BYTES
        if isinstance(entry, BatchEntry | SchemaEntry):
            size += len(entry.payload)
        if self._waiting_bytes + size > MAX_WAITING_BYTES:
            self._break("the journal's disk is too slow")
            return
        self._waiting.append(entry)
        self._waiting_bytes += size
        self._has_waiting.set()

    async def run(self, ended: asyncio.Event) -> None:
        """Commits until `ended`, and the rest then."""
        end = asyncio.create_task(ended.wait())
        try:
            while not ended.is_set():
                waiting = asyncio.create_task(self._has_waiting.wait())
                await asyncio.wait({waiting, end}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if not ended.is_set():
                    await asyncio.sleep(GROUP_SECONDS)
                await self.commit()
        finally:
            end.cancel()

    async def commit(self) -> None:
        """Writes and fsyncs the waiting entries."""
        async with self._busy:
            self._has_waiting.clear()
            if self.lacks_entries:
                return
            entries, self._waiting, self._waiting_bytes = self._waiting, [], 0
            if not entries:
                return
            breaks = self._breaks
            try:
                await asyncio.to_thread(self._journal.append, entries)
            except StateError as exc:
                if breaks == self._breaks:
                    self._break(str(exc))
                return
            finally:
                self.bytes = self._journal.size_bytes
            self._written = max(self._written, entries[-1].lsn)
            if self._whole_since == breaks:
                self._set_durable(self._written)

    async def wait_durable(self, lsn: int, seconds: float) -> None:
        """Waits until `lsn` is durable, the group commit fails, or `seconds` elapse."""
        try:
            async with asyncio.timeout(seconds):
                while self.durable_lsn < lsn and self.whole:
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            _log.debug("group commit takes more than %.0f s", seconds)

    async def rotate(self) -> tuple[int, int]:
        """Starts a new segment; its number, and a token for `checkpointed`.

        The caller must record nothing meanwhile.
        """
        await self.commit()
        async with self._busy:
            try:
                number = await asyncio.to_thread(self._journal.rotate)
                self._broken = False
                self._waiting, self._waiting_bytes = [], 0  # of an earlier attempt
            except StateError as exc:
                number = self._journal.next_number
                self._break(str(exc))
            return number, self._breaks

    def checkpointed(self, lsn: int, token: int) -> None:
        """A snapshot up to `lsn` is on the disk; `token` comes from its `rotate`."""
        if token == self._breaks and not self._broken:
            self._whole_since = self._breaks
            if self._warned:
                _log.info("the state is written again: batches are acknowledged")
            self._warned = False
            lsn = max(lsn, self._written)
            if self._waiting:
                self._has_waiting.set()
        self._set_durable(lsn)

    def failed(self, reason: str) -> None:
        """A snapshot could not be written."""
        self.failures += 1
        if not self.whole:
            self._warn(reason)

    async def release(self, number: int) -> str:
        """Deletes the segments before `number`; about the first that stays, empty when all are gone."""
        async with self._busy:
            problem = await asyncio.to_thread(self._journal.release, number)
            self.bytes = self._journal.size_bytes
        return problem

    def _break(self, reason: str) -> None:
        self.failures += 1
        self._broken = True
        self._breaks += 1
        self._progress.set()
        self._warn(reason)

    def _warn(self, reason: str) -> None:
        if not self._warned:
            _log.warning("%s: batches are not acknowledged until the state is written again", reason)
        self._warned = True

    def _set_durable(self, lsn: int) -> None:
        if lsn > self.durable_lsn:
            self.durable_lsn = lsn
            self._durable(lsn)
        self._progress.set()


def is_damage(exc: BaseException | None) -> bool:
    """Whether the disk could not read a file that is there."""
    while exc is not None and not isinstance(exc, OSError):
        exc = exc.__cause__
    return exc is not None and exc.errno in _MEDIUM


def _returned(segments: Iterable[Path]) -> Iterator[int]:
    """The lsns of batches that earlier versions recorded as accepted, and took back with a RETURN record."""
    for path in segments:
        with suppress(StateError, SpoolError):  # reported when the entries are read
            for record in segment_log.scan(path):
                if record.type == journal_codec.RecordType.RETURN:
                    yield journal_codec.returned_lsn(record, str(path))


def delete_all(paths: Iterable[Path]) -> str:
    """Deletes files; about the first that cannot be deleted, in one line, empty when all are gone."""
    problem = ""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as exc:
            problem = problem or f"{path} cannot be deleted: {exc.strerror or exc}"
    return problem


@contextmanager
def state_errors(path: Path) -> Iterator[None]:
    """Raises the block's OSError, which is about `path`, or its SpoolError as StateError."""
    try:
        yield
    except SpoolError as exc:
        raise StateError(exc.path, exc.reason) from exc
    except OSError as exc:
        raise StateError(str(path), exc.strerror or str(exc)) from exc
