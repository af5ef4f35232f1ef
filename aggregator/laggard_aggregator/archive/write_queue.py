"""The archive's bounded write queue, drained by one thread at a time.

Overload sheds the archive before verdicts. A batch beyond `room` is judged but not accepted, so that its
agent sends it again; other records beyond the limit are dropped and counted. Without a journal, batches are
durable once they are flushed; with one, nothing is written before it is durable there.

An archive that cannot be used at the start is opened later: until then records wait, within the same bounds.
Where the journal of a restart has more of them, it is opened by the next restart only, which writes all.
"""

import asyncio
import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.archive import layout
from laggard_aggregator.archive.part_reader import count_damaged
from laggard_aggregator.archive.retention import compact, retain, scrub
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.engine.machine import Result
from laggard_aggregator.ingest.admission import Room
from laggard_aggregator.ingest.batches import Batch, Document
from laggard_aggregator.log.entries import WindowClose
from laggard_aggregator.log.journal import GroupCommit
from laggard_aggregator.settings.aggregator import ArchiveTable
from laggard_common.clock import Clock
from laggard_common.errors import ArchiveError

_log = logging.getLogger(__name__)

MAX_VALUE_BYTES = 512 * 1024**2
"""Limit of the counters that wait to be written."""
MAX_RECORDS = 200_000
WRITE_SECONDS = 1.0
FLUSH_SECONDS = 15.0  # agents send unacknowledged batches again after a minute
RETAIN_SECONDS = 600.0
SCRUB_BYTES = 10**9
"""Bytes of the archive whose checksums are checked every RETAIN_SECONDS: a second of one core."""


class WriteQueue:
    """Accepts records on the event loop, writes them in a thread. `durable(lsn)`: called after each flush.

    `journal`: records are written once they are durable in it; None without one. `is_right`: whether the
    clock may decide that files are too old. `failure`: why the archive cannot be written now, or empty.
    `damaged`: files that were set aside.
    """

    def __init__(
        self,
        writer: ArchiveWriter,
        retention: ArchiveTable,
        durable: Callable[[int], None] | None,
        clock: Clock,
        is_right: Callable[[], bool] = lambda: True,
    ) -> None:
        self._writer = writer
        self.last_written: int | None = None
        """The last lsn of this run in the archive when it was opened; None before that."""
        self._retention = retention
        self._durable = durable
        self._clock = clock
        self._is_right = is_right
        self.journal: GroupCommit | None = None
        self._writing = asyncio.Lock()
        self._records: deque[Result] = deque()
        self._value_bytes = 0
        self._documents: Counter[str] = Counter()
        self._last_lsn = 0
        self._oldest_ns: int | None = None
        """When the oldest record came that readers do not see yet."""
        self._dropped = 0
        self._left_in_journal = False
        """Whether `replay` left out records while the archive was closed."""
        self._unchecked: Iterator[layout.Part] = iter(())
        self.damaged = 0
        self.failure = ""

    @property
    def refused_rows(self) -> Counter[str]:
        """Rows left out, by node, whose schemas have too many fields."""
        return self._writer.refused_rows

    @property
    def refused_documents(self) -> int:
        """Malformed documents."""
        return self._writer.refused_documents

    @property
    def dropped(self) -> int:
        """Records and rows that the archive lacks because it was too slow or could not be written."""
        return self._dropped + self._writer.dropped_rows

    @property
    def lag_seconds(self) -> float:
        """For how long the oldest record that readers do not see yet has waited; 0 without one."""
        return 0.0 if self._oldest_ns is None else max(self._clock.wall_ns() - self._oldest_ns, 0) / 1e9

    def room(self) -> Room:
        """Free space for batches and documents."""
        batches, value_bytes = MAX_RECORDS - len(self._records), MAX_VALUE_BYTES - self._value_bytes
        return Room(max(batches, 0), value_bytes, self._documents.copy())

    def put(self, record: Result) -> None:
        """Adds a record; never waits. Batches and documents have room (`room`), others may be dropped."""
        if isinstance(record, Batch | Document):
            self._count(record)
            if self._oldest_ns is None:
                self._oldest_ns = record.received_ns
        elif len(self._records) >= MAX_RECORDS:
            self._dropped += 1
            return
        self._records.append(record)

    def open(self) -> bool:
        """Opens the archive; whether that succeeded. `write` tries again."""
        return self._attempt(self._open)

    def has_batch(self, source: str, lsn: int) -> bool:
        """Whether the archive had a batch of this run when it was opened."""
        return self._writer.has_batch(source, lsn)

    def replay(self, records: Iterable[Result]) -> None:
        """Writes the results of a restart's replay at any length; rows that are written already are skipped.

        Before the archive is open they wait as others do; those beyond the bounds stay in the journal, for
        the next restart.
        """
        for record in records:
            if self.last_written is None:
                self._left_in_journal = self._left_in_journal or not self._fits(record)
                if self._left_in_journal:
                    self._dropped += 1
                else:
                    self.put(record)
            elif not self._attempt(partial(self._write_record, record)):
                # The writer has a batch or document nonetheless.
                self._dropped += not isinstance(record, Batch | Document)

    def _fits(self, record: Result) -> bool:
        room = self.room()
        if isinstance(record, Document):
            return room.claim_document(record.node, record.value_bytes)
        return room.claim(record.size_bytes) if isinstance(record, Batch) else room.batches > 0

    def _count(self, record: Batch | Document) -> None:
        """Counts the memory of a waiting record."""
        if isinstance(record, Batch):
            self._value_bytes += record.size_bytes
        else:
            self._value_bytes += record.value_bytes
            self._documents[record.node] += record.value_bytes

    async def run(self, stop: asyncio.Event) -> None:
        """Writes, flushes, compacts and deletes by age; writes the rest once `stop` is set."""
        flush_due = self._now() + FLUSH_SECONDS
        retain_due = self._now()
        async with asyncio.TaskGroup() as tasks:
            scrubbing: asyncio.Task[None] | None = None
            while not stop.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), WRITE_SECONDS)
                    break
                now = self._now()
                retain_now = now >= retain_due and self._is_right()
                if retain_now:  # first, as it makes room
                    retain_due = now + RETAIN_SECONDS
                    await self._maintain(partial(retain, retention=self._retention))
                flush = now >= flush_due
                await self.write(flush)
                if flush:
                    flush_due = now + FLUSH_SECONDS
                if retain_now and (scrubbing is None or scrubbing.done()):  # each may move files away
                    await self._maintain(compact)
                    scrubbing = tasks.create_task(self._scrub(), name="archive scrub")
            if scrubbing is not None:
                scrubbing.cancel()  # its thread ends later
            await self.write(flush=True)

    async def _maintain(self, work: Callable[[Path, int], object]) -> None:
        """Runs `work` with the archive's folder and the time, while nothing is written."""
        async with self._writing:
            arguments = self._writer.directory, self._clock.wall_ns()
            await asyncio.to_thread(self._attempt, partial(work, *arguments))

    async def _scrub(self) -> None:
        """Checks the next files of the archive while others are written; begins again after the last one."""
        damaged = await asyncio.to_thread(self._checked)
        async with self._writing:
            if damaged > self.damaged:
                self._writer.schemas_lost()  # schemas may be among them
            self.damaged = damaged

    def _checked(self) -> int:
        """Number of damaged files after the next ones were checked."""
        directory = self._writer.directory
        try:
            if not scrub(self._unchecked, SCRUB_BYTES):
                self._unchecked = layout.all_parts(directory)
            return count_damaged(directory)
        except (ArchiveError, OSError) as exc:  # as files are merged and deleted meanwhile
            _log.warning("cannot check the archive: %s", exc)
            return self.damaged

    async def write(self, flush: bool, at_least: int = 0) -> bool:
        """Writes the queue; with `flush` readers see it afterwards, and batches are durable.

        Records up to the lsn `at_least` are written even if they are not durable in the journal. Returns
        whether the disk accepted everything.
        """
        async with self._writing:
            until = math.inf if self.journal is None else max(self.journal.durable_lsn, at_least)
            records, self._records = self._records, deque()
            self._value_bytes = 0
            self._documents.clear()
            written = await asyncio.to_thread(self._attempt, lambda: self._write(records, until, flush))
            self._records.extendleft(reversed(records))  # left over by a failing disk
            for record in records:
                if isinstance(record, Batch | Document):
                    self._count(record)
            if written and flush:
                if self.failure:  # a write without a flush may not have touched the disk
                    _log.info("archive is written again")
                self.failure = ""
                came = (r.received_ns for r in self._records if isinstance(r, Batch | Document))
                self._oldest_ns = next(came, None)
                if self._durable is not None:
                    self._durable(self._last_lsn)
            return written

    async def has(self, lsn: int) -> bool:
        """Flushes; whether everything up to `lsn` is in the archive then."""
        written = await self.write(flush=True, at_least=lsn)
        first = next((r.lsn for r in self._records if not isinstance(r, Judgement)), lsn + 1)
        return written and first > lsn

    def _write(self, records: deque[Result], until: float, flush: bool) -> None:
        if self.last_written is None:
            self._open()
        elif self.failure:
            self._writer.flush()  # new records wait here, where they are counted, until this succeeds
        while records:
            record = records[0]
            if not isinstance(record, Judgement) and record.lsn > until:
                break
            self._write_record(records.popleft())
        if flush:
            self._writer.flush()

    def _open(self) -> None:
        if self.last_written is not None:
            return
        if self._left_in_journal:  # with later rows in the archive, a restart would leave these out
            reason = (
                "was not usable at the start, and the journal holds more than memory can: restart to write it"
            )
            raise ArchiveError(str(self._writer.directory), reason)
        last = self._writer.open()
        self._writer.flush()
        self.last_written = last
        self.damaged = count_damaged(self._writer.directory)

    def _write_record(self, record: Result) -> None:
        if isinstance(record, Batch):
            self._last_lsn = record.lsn
            self._writer.batch(record)
        elif isinstance(record, Document):
            self._last_lsn = record.lsn
            self._writer.document(record)
        elif isinstance(record, WindowClose):
            self._writer.window_close(record)
        elif isinstance(record, Judgement):
            self._writer.judgement(record)
        else:
            self._writer.alarms_cleared(record)

    def _attempt(self, work: Callable[[], object]) -> bool:
        """Whether `work` succeeded; a failing disk is one WARNING until a flush succeeds again."""
        try:
            work()
        except ArchiveError as exc:
            if not self.failure:
                _log.warning("archive cannot be written: %s", exc)
            self.failure = str(exc)
            return False
        return True

    def _now(self) -> float:
        return self._clock.monotonic_ns() / 1e9
