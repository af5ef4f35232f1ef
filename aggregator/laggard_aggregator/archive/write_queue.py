"""The way to the archive: a bounded queue, and one thread at a time that writes.

Overload sheds the archive before verdicts: a batch that does not fit is refused, so that it is not
acknowledged and comes again; other records that do not fit are dropped. Both are counted. Without a journal
batches are safe, and may be acknowledged, once they are flushed; with one nothing is written before it is
safe there.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from laggard_aggregator.alarms.alarms import Ended
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.archive.retention import Retention
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.ingest.batches import TakenBatch, WindowClose
from laggard_common.clock import Clock
from laggard_common.daemon.service import is_set_within
from laggard_common.errors import ArchiveError

_log = logging.getLogger(__name__)

Record = TakenBatch | WindowClose | Judgement | Ended

MAX_SAMPLES = 4_000_000
MAX_VALUE_BYTES = 1024**3  # of them: by samples alone some with 1,024 fields would be thirty times as much
MAX_RECORDS = 200_000
WRITE_SECONDS = 1.0
FLUSH_SECONDS = 15.0  # agents send again what was not acknowledged for a minute
KEEP_SECONDS = 600.0


class ArchiveFeed:
    """Takes records on the loop and writes them in a thread. `safe(ordinal)` is told after every flush.

    `until`, where there is one, says up to which ordinal records may be written.
    """

    def __init__(
        self,
        writer: ArchiveWriter,
        retention: Retention,
        safe: Callable[[int], None],
        clock: Clock,
        until: Callable[[], int] | None = None,
    ) -> None:
        self._writer = writer
        self._retention = retention
        self._safe = safe
        self._clock = clock
        self._until = until
        self._writing = asyncio.Lock()
        self.returned = 0
        self._records: deque[Record] = deque()
        self._samples = self._value_bytes = 0
        self._last_ordinal = 0
        self._dropped = 0
        self._failing = False

    @property
    def dropped(self) -> int:
        """Records and rows that the archive does not have, because it was too slow or could not write."""
        return self._dropped + self._writer.dropped_rows

    @property
    def last_written(self) -> int:
        """The last ordinal of this run that the archive had when it was opened."""
        return self._writer.last_written

    def offer(self, record: Record) -> bool:
        """Takes a record, unless there is no room for it; never waits."""
        samples, value_bytes = _size(record)
        if (
            self._samples + samples > MAX_SAMPLES
            or self._value_bytes + value_bytes > MAX_VALUE_BYTES
            or len(self._records) >= MAX_RECORDS
        ):
            if isinstance(record, TakenBatch):
                self.returned += 1
            else:
                self._dropped += 1
            return False
        self._records.append(record)
        self._account(samples, value_bytes)
        return True

    def replay(self, records: Iterable[Record]) -> None:
        """Takes what a restart went through, at any length; what is written already is skipped."""
        for record in records:
            if not self._attempt(partial(self._put, record)):
                self._dropped += not isinstance(record, TakenBatch)  # the writer has the batch nonetheless

    async def run(self, stop: asyncio.Event) -> None:
        """Writes, flushes, compacts and deletes what is old; writes the rest once `stop` is set."""
        flush_due = self._now() + FLUSH_SECONDS
        keep_due = self._now()
        while not await is_set_within(stop, WRITE_SECONDS):
            now = self._now()
            flush = now >= flush_due
            await self.write(flush)
            if flush:
                flush_due = now + FLUSH_SECONDS
            if now >= keep_due:
                keep_due = now + KEEP_SECONDS
                async with self._writing:  # compaction clears away what seems to be left over
                    await asyncio.to_thread(self._attempt, self._retain)  # first: compaction wants space
                    await asyncio.to_thread(self._attempt, self._compact)
        await self.write(flush=True)

    async def write(self, flush: bool, at_least: int = 0) -> bool:
        """Writes what waits; with `flush` a reader sees it afterwards, and batches are safe.

        Up to the ordinal `at_least` it is written whether it is safe or not. Whether that went well.
        """
        async with self._writing:
            until = math.inf if self._until is None else max(self._until(), at_least)
            records, self._records = self._records, deque()
            self._samples = self._value_bytes = 0
            written = await asyncio.to_thread(self._attempt, lambda: self._write(records, until, flush))
            for record in reversed(records):  # a disk that fails leaves some for the next time
                self._records.appendleft(record)
                self._account(*_size(record))
            if written and flush:
                self._works()
                self._safe(self._last_ordinal)
            return written

    async def has(self, ordinal: int) -> bool:
        """Whether everything up to `ordinal` is in the archive, after a flush."""
        written = await self.write(flush=True, at_least=ordinal)
        first = next((r.ordinal for r in self._records if not isinstance(r, Judgement)), ordinal + 1)
        return written and first > ordinal

    def _write(self, records: deque[Record], until: float, flush: bool) -> None:
        if self._failing:
            self._writer.flush()  # what comes waits here, where it is counted, until this goes well
        while records:
            record = records[0]
            if not isinstance(record, Judgement) and record.ordinal > until:
                break
            self._put(records.popleft())
        if flush:
            self._writer.flush()

    def _put(self, record: Record) -> None:
        if isinstance(record, TakenBatch):
            self._last_ordinal = record.ordinal
            self._writer.batch(record)
        elif isinstance(record, WindowClose):
            self._writer.close(record)
        elif isinstance(record, Ended):
            self._writer.ended(record)
        else:
            self._writer.judgement(record)

    def _account(self, samples: int, value_bytes: int) -> None:
        self._samples += samples
        self._value_bytes += value_bytes

    def _retain(self) -> None:
        self._writer.retain(self._clock.wall_ns(), self._retention)

    def _compact(self) -> None:
        self._writer.compact(self._clock.wall_ns())

    def _attempt(self, work: Callable[[], None]) -> bool:
        """Whether `work` went well; a failing disk is one WARNING until a flush has gone well again."""
        try:
            work()
        except ArchiveError as exc:
            if not self._failing:
                _log.warning("the archive cannot be written: %s", exc)
            self._failing = True
            return False
        return True

    def _works(self) -> None:
        """Takes in that everything is on the disk; without a flush nothing may have been tried."""
        if self._failing:
            _log.info("the archive is written again")
        self._failing = False

    def _now(self) -> float:
        return self._clock.monotonic_ns() / 1e9


def _size(record: Record) -> tuple[int, int]:
    """How many samples a record counts for, and the bytes of their values."""
    if isinstance(record, TakenBatch):
        return record.batch.indexes.size * record.batch.tick_ns.size, record.batch.values.nbytes
    return 1, 0
