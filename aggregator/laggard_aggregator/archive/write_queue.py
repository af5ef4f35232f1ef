"""The archive's bounded write queue, drained by one thread at a time.

Overload sheds the archive before verdicts. A batch beyond `room` is judged but not accepted, so that its
agent sends it again; other records beyond the limit are dropped and counted. Without a journal, batches are
durable once they are flushed; with one, nothing is written before it is durable there.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.archive.retention import compact, retain
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.engine.machine import Result
from laggard_aggregator.ingest.admission import Room
from laggard_aggregator.ingest.batches import Batch
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


class WriteQueue:
    """Accepts records on the event loop, writes them in a thread. `durable(lsn)`: called after each flush.

    `journal`: records are written once they are durable in it; None without one. `failure`: why the archive
    cannot be written now, or empty.
    """

    def __init__(
        self,
        writer: ArchiveWriter,
        retention: ArchiveTable,
        durable: Callable[[int], None] | None,
        clock: Clock,
    ) -> None:
        self._writer = writer
        self.last_written = writer.last_written
        """The last lsn of this run in the archive when it was opened."""
        self._retention = retention
        self._durable = durable
        self._clock = clock
        self.journal: GroupCommit | None = None
        self._writing = asyncio.Lock()
        self._records: deque[Result] = deque()
        self._value_bytes = 0
        self._last_lsn = 0
        self._dropped = 0
        self.failure = ""

    @property
    def dropped(self) -> int:
        """Records and rows that the archive lacks because it was too slow or could not be written."""
        return self._dropped + self._writer.dropped_rows

    def room(self) -> Room:
        """Free space for batches."""
        return Room(max(MAX_RECORDS - len(self._records), 0), MAX_VALUE_BYTES - self._value_bytes)

    def put(self, record: Result) -> None:
        """Adds a record; never waits. Batches have their place (`room`), other records may be dropped."""
        if isinstance(record, Batch):
            self._value_bytes += record.counters.values.nbytes
        elif len(self._records) >= MAX_RECORDS:
            self._dropped += 1
            return
        self._records.append(record)

    def replay(self, records: Iterable[Result]) -> None:
        """Writes the results of a restart's replay at any length; what is written already is skipped."""
        for record in records:
            if not self._attempt(partial(self._write_record, record)):
                self._dropped += not isinstance(record, Batch)  # the writer has the batch nonetheless

    async def run(self, stop: asyncio.Event) -> None:
        """Writes, flushes, compacts and deletes by age; writes the rest once `stop` is set."""
        flush_due = self._now() + FLUSH_SECONDS
        retain_due = self._now()
        while not stop.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), WRITE_SECONDS)
                break
            now = self._now()
            flush = now >= flush_due
            await self.write(flush)
            if flush:
                flush_due = now + FLUSH_SECONDS
            if now >= retain_due:
                retain_due = now + RETAIN_SECONDS
                directory, now_ns = self._writer.directory, self._clock.wall_ns()
                async with self._writing:  # compaction removes leftover files, and needs space
                    for work in (partial(retain, retention=self._retention), compact):
                        await asyncio.to_thread(self._attempt, partial(work, directory, now_ns))
        await self.write(flush=True)

    async def write(self, flush: bool, at_least: int = 0) -> bool:
        """Writes the queue; with `flush` readers see it afterwards, and batches are durable.

        Records up to the lsn `at_least` are written even if they are not durable in the journal. Returns
        whether the disk accepted everything.
        """
        async with self._writing:
            until = math.inf if self.journal is None else max(self.journal.durable_lsn, at_least)
            records, self._records = self._records, deque()
            self._value_bytes = 0
            written = await asyncio.to_thread(self._attempt, lambda: self._write(records, until, flush))
            self._records.extendleft(reversed(records))  # left over by a failing disk
            self._value_bytes += sum(r.counters.values.nbytes for r in records if isinstance(r, Batch))
            if written and flush:
                if self.failure:  # a write without a flush may not have touched the disk
                    _log.info("archive is written again")
                self.failure = ""
                if self._durable is not None:
                    self._durable(self._last_lsn)
            return written

    async def has(self, lsn: int) -> bool:
        """Flushes; whether everything up to `lsn` is in the archive then."""
        written = await self.write(flush=True, at_least=lsn)
        first = next((r.lsn for r in self._records if not isinstance(r, Judgement)), lsn + 1)
        return written and first > lsn

    def _write(self, records: deque[Result], until: float, flush: bool) -> None:
        if self.failure:
            self._writer.flush()  # new records wait here, where they are counted, until this succeeds
        while records:
            record = records[0]
            if not isinstance(record, Judgement) and record.lsn > until:
                break
            self._write_record(records.popleft())
        if flush:
            self._writer.flush()

    def _write_record(self, record: Result) -> None:
        if isinstance(record, Batch):
            self._last_lsn = record.lsn
            self._writer.batch(record)
        elif isinstance(record, WindowClose):
            self._writer.close(record)
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
