"""Recovery: restores the machine from its state directory, journals it, and takes snapshots while it runs.

The order makes it safe. An entry is in the journal before it is acknowledged. A snapshot is on the disk
before the journal behind it is deleted. A snapshot counts only once the archive has everything up to it,
unless the journal runs out of space: what follows the snapshot is all that a restart can archive again.
"""

import asyncio
import errno
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import IO

from laggard_aggregator.engine.checkpoint import Head, capture, restore
from laggard_aggregator.engine.machine import Machine, Result
from laggard_aggregator.ingest.batches import Accepted
from laggard_aggregator.log import snapshots
from laggard_aggregator.log.entries import BatchEntry, EntryTimes, LogSequence, WindowClose
from laggard_aggregator.log.journal import GroupCommit, Journal
from laggard_aggregator.settings.aggregator import StateTable
from laggard_common.clock import Clock
from laggard_common.daemon.file_lock import take_lock
from laggard_common.daemon.service import is_set_within
from laggard_common.errors import LaterVersionError, StateError
from laggard_common.wire import topics

_log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
"""Interval of checking whether a snapshot is due."""
MAX_POSTPONED_SECONDS = 10.0
"""Longest time that a due snapshot waits for a moment at which it delays no window."""
RETRY_SECONDS = 10.0
"""Time to the next attempt while batches are not acknowledged for want of a snapshot."""
DURABLE_SECONDS = 10.0
JOURNAL_SHARE = 0.5
"""Share of the journal's space from which a snapshot no longer waits for the archive."""

ARCHIVE_LEAD_LSNS = 2**32
"""Sequence numbers left out where the archive cannot be read at the start: it may be ahead of the journal."""

_TRANSIENT = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors of a state directory that may pass."""

Archived = Callable[[int], Awaitable[bool]]
"""Flushes the archive; whether it has everything up to an lsn."""


class Recovery:
    """The state in `settings.directory`. `load`, `replay` and `start` come first, in this order."""

    def __init__(self, settings: StateTable, clock: Clock) -> None:
        """Raises ServiceError when another aggregator uses the directory, StateError when it is unusable."""
        self._settings = settings
        self._directory = settings.directory
        self._clock = clock
        self._lock = self._acquire_lock()
        try:
            self._journal = Journal(self._directory, settings.journal_max_bytes)
        except StateError:
            if self._lock is not None:
                self._lock.close()
            raise
        self._unusable: set[int] = set()
        self._from_segment = 0
        self._run_ns = 0
        self._continues = False
        self._problems: dict[str, str] = {}
        self.snapshot_bytes = 0
        self.snapshot_at = math.nan
        self.snapshot_seconds = 0.0
        self.lost = 0
        """Batches and closes that `replay` did not find."""
        self.damaged = 0
        """Faults that `load` and `replay` found in snapshots and journal."""
        self._machine: Machine
        self.journal: GroupCommit

    @property
    def has_journal(self) -> bool:
        """Whether there is a journal; of an earlier process before `start`."""
        return self._journal.size_bytes > 0

    def entry_times(self) -> EntryTimes:
        """Times of the journal's entries, by which the archive's rows of the same run are known. Slow."""
        return self._journal.times()

    def load(self, make: Callable[[], Machine]) -> tuple[Machine, Head | None]:
        """The machine of the newest usable snapshot and the snapshot's head; else a new machine.

        Slow. An unusable snapshot is a WARNING, and the one before it is tried. Raises ServiceError on the
        state of another site, LaterVersionError on that of a later version.
        """
        numbers = snapshots.numbers(self._directory)
        for number in numbers:
            machine = make()
            path = str(self._directory / f"{number:012d}{snapshots.SUFFIX}")
            try:
                head = restore(machine, snapshots.read(self._directory, number), path)
            except LaterVersionError:
                raise  # an older snapshot would go on without what the later version acknowledged
            except StateError as exc:
                _log.warning("state: %s", exc)
                self.damaged += 1
                self._unusable.add(number)
                continue
            self._journal.next_number = max(self._journal.next_number, number + 1)
            self._from_segment = number
            return machine, head
        if numbers or self._journal.is_behind_a_snapshot:
            _log.warning(
                "state: no snapshot can be read: evidence and alarms from before the journal are lost"
            )
            self.damaged += not numbers
        return make(), None

    def replay(
        self, machine: Machine, is_archived: Callable[[str, int], bool] = lambda _source, _lsn: False
    ) -> Iterator[Result]:
        """The results of the entries after the snapshot of `machine`, some of which may be `lost`. Slow.

        `is_archived`: whether the archive had the batch of a source with that lsn before.
        """
        started, entries = time.monotonic(), 0
        expected = machine.sequence.last + 1 if self._from_segment else None
        for entry in self._journal.entries(self._from_segment):
            entries += 1
            if isinstance(entry, BatchEntry | WindowClose):
                self._count_lost(entry.lsn - (entry.lsn if expected is None else expected))
                expected = entry.lsn + 1
            yield from machine.replay(entry)
        self._count_lost(self._journal.damaged_at_end)
        yield from self._readmit(machine, is_archived)
        self.damaged += self._journal.damaged
        _log.info(
            "state: restored, with %d journaled messages and closes, in %.1f s",
            entries,
            time.monotonic() - started,
        )

    def skip_to(self, sequence: LogSequence, archived: int | None) -> None:
        """Continues after `archived`, the last lsn in the archive, which may be ahead of a damaged journal.

        None: the archive cannot be read, and may be so far ahead.
        """
        if archived is None:
            sequence.last += ARCHIVE_LEAD_LSNS
        else:
            self._count_lost(archived - sequence.last - self._journal.damaged_at_end)
            sequence.last = max(sequence.last, archived)

    async def start(
        self,
        machine: Machine,
        run_ns: int,
        durable: Callable[[int], None],
        archived: Archived | None = None,
        *,
        continues: bool = False,
    ) -> None:
        """Journals `machine` from now on, and takes the first snapshot; `durable` as in GroupCommit.

        With that snapshot the next start does not repeat this replay, so the archive has its results first.
        `continues`: it is of the same run as the snapshot that was loaded. Then that snapshot and the journal
        behind it have all of it, and batches are acknowledged even while the archive is down.
        """
        self._machine, self._run_ns, self._continues = machine, run_ns, continues
        self.journal = GroupCommit(self._journal, durable, machine.sequence.last)
        machine.record(self.journal.record)
        await self.snapshot((), archived)

    async def run(
        self,
        stop: asyncio.Event,
        locks: Sequence[asyncio.Lock],
        archived: Archived | None,
        free_seconds: Callable[[], float],
    ) -> None:
        """Takes snapshots until `stop`. The machine does not change while all of `locks` are held.

        `free_seconds`: time for which a snapshot delays no window.
        """
        due = self._now() + self._settings.snapshot_seconds
        while not await is_set_within(stop, POLL_SECONDS):
            late = self._now() - due
            if late >= MAX_POSTPONED_SECONDS or (late >= 0 and free_seconds() >= 2 * self.snapshot_seconds):
                await self.snapshot(locks, archived)
                due = self._now() + self._settings.snapshot_seconds
            elif not self.journal.whole:
                due = min(due, self._now() + RETRY_SECONDS)

    async def snapshot(self, locks: Sequence[asyncio.Lock], archived: Archived | None) -> bool:
        """Takes a snapshot; whether it is on the disk."""
        await self.journal.commit()  # so that little is left while the locks are held
        async with AsyncExitStack() as held:
            for lock in locks:
                await held.enter_async_context(lock)
            started = self._clock.monotonic_ns()
            number, token = await self.journal.rotate()
            now_ns = self._clock.wall_ns()
            sections = await asyncio.to_thread(capture, self._machine, self._run_ns, now_ns)
            self.snapshot_seconds = (self._clock.monotonic_ns() - started) / 1e9
            lsn = self._machine.sequence.last
        try:
            size = await asyncio.to_thread(snapshots.write, self._directory, number, iter(sections))
            if not await self._is_archived(lsn, archived):
                _log.debug("state: the snapshot waits for the archive")
                await asyncio.to_thread(snapshots.discard, self._directory, number)
                if self._continues and not token:  # no write of the journal has failed
                    self.journal.checkpointed(lsn, token)
                return False
            await asyncio.to_thread(snapshots.publish, self._directory, number)
            self.journal.checkpointed(lsn, token)
            self.snapshot_bytes, self.snapshot_at = size, now_ns / 1e9
            self._note("a snapshot is written", "")
            pruned = await asyncio.to_thread(snapshots.prune, self._directory, self._unusable)
            problem = await self.journal.release(pruned.oldest)
            self._note("old files are deleted", pruned.problem or problem)
        except StateError as exc:
            if self.journal.whole:  # else the journal has said it
                self._note("a snapshot is written", f"no snapshot is written: {exc}")
            self.journal.failed(str(exc))
            return False
        return True

    def _note(self, part: str, problem: str) -> None:
        """Logs the begin of a problem and its end, once each."""
        before, self._problems[part] = self._problems.get(part, ""), problem
        if problem and not before:
            _log.warning("state: %s", problem)
        elif before and not problem:
            _log.info("state: %s again", part)

    def close(self) -> None:
        """Unlocks the directory."""
        self._journal.close()
        if self._lock is not None:
            self._lock.close()

    async def _is_archived(self, lsn: int, archived: Archived | None) -> bool:
        """Whether a snapshot up to `lsn` may be published, which acknowledges everything up to it.

        Entries that the journal lacks are in the archive before that.
        """
        if archived is None or not lsn or not self._has_room():
            return True
        await self.journal.wait_durable(lsn, DURABLE_SECONDS)
        return await archived(lsn)

    def _count_lost(self, entries: int) -> None:
        entries = max(entries, 0) % ARCHIVE_LEAD_LSNS  # left out, and not lost
        if entries:
            _log.warning("state: lost %d batches and window closes of the journal", entries)
            self.lost += entries

    def _readmit(self, machine: Machine, is_archived: Callable[[str, int], bool]) -> Iterator[Accepted]:
        """Batches whose schema is damaged wait for it once more, unless the archive has them.

        So do the messages that waited in the snapshot: they may have been acknowledged like those.
        """
        unread, machine.unread = machine.unread, []
        waiting = 0
        for entry in unread:
            if is_archived(topics.parse_topic(entry.topic).source, entry.lsn):
                machine.admission.mark_received(entry)
            else:
                waiting += 1
                yield from machine.receive([(entry.topic, entry.payload, entry.received_ns)])
        if unread:
            _log.warning(
                "state: %d batches of the journal have no schema; %d are in the archive, %d wait for one",
                len(unread),
                len(unread) - waiting,
                waiting,
            )
        yield from machine.receive(machine.admission.pop_restored())

    def _has_room(self) -> bool:
        return self.journal.bytes < JOURNAL_SHARE * self._settings.journal_max_bytes

    def _acquire_lock(self) -> IO[bytes] | None:
        """The directory's lock; None on a full or read-only disk, where no process can have it."""
        try:
            return take_lock(self._directory, "the state is in use by another aggregator")
        except OSError as exc:
            if self._directory.exists() and not self._directory.is_dir():
                raise StateError(str(self._directory), "is not a directory") from exc
            if exc.errno not in _TRANSIENT or not self._directory.exists():
                raise StateError(str(self._directory), exc.strerror or str(exc)) from exc
        return None

    def _now(self) -> float:
        return self._clock.monotonic_ns() / 1e9
