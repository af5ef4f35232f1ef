"""Keeps a core's state in a directory: restored at the start, journaled and captured while it runs.

The order is what makes it safe. An entry is in the journal before it is acknowledged; a snapshot is on the
disk before the journal behind it goes; and it is none before the archive has what it covers, unless the
journal runs out of space: what follows a snapshot is all that a restart can archive again.
"""

import asyncio
import errno
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import IO

from laggard_aggregator.alarms.alarms import Ended
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.engine.checkpoint import Head, capture, restore
from laggard_aggregator.engine.machine import Core
from laggard_aggregator.ingest.batches import TakenBatch, WindowClose
from laggard_aggregator.ingest.schema_wait import MAX_HELD_OF_NODE
from laggard_aggregator.log import snapshots
from laggard_aggregator.log.entries import ReturnEntry
from laggard_aggregator.log.group_commit import Commits
from laggard_aggregator.log.journal import Journal
from laggard_aggregator.settings.aggregator import StateTable
from laggard_aggregator.status.view import Durability
from laggard_common.clock import Clock
from laggard_common.daemon import file_lock
from laggard_common.daemon.service import is_set_within
from laggard_common.errors import StateError

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often is looked whether a snapshot is due."""
MOST_POSTPONED_SECONDS = 10.0
"""How long a snapshot that is due waits for a moment at which it holds up nothing."""
RETRY_SECONDS = 10.0
"""How soon a snapshot is tried again while batches are not acknowledged for want of one."""
SETTLE_SECONDS = 10.0
JOURNAL_SHARE = 0.5
"""Share of the journal's space from which a snapshot no longer waits for the archive."""

_AHEAD = MAX_HELD_OF_NODE + 1
"""So many batches may one message let be taken before the first of them is given back."""
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""What may be wrong with a directory that is right for the rest."""

Archived = Callable[[int], Awaitable[bool]]
"""Whether, after trying, the archive has everything up to an ordinal."""


class Keeper:
    """The state in `settings.directory`. `load`, `replay` and `begin` come first, in this order."""

    def __init__(self, settings: StateTable, clock: Clock) -> None:
        """Raises ServiceError when another aggregator uses the directory, StateError when nobody can."""
        self._settings = settings
        self._directory = settings.directory
        self._clock = clock
        self._lock = self._take_lock()
        self._journal = Journal(self._directory, settings.journal_max_bytes)
        self._from_segment = 0
        self._run_ns = 0
        self._snapshot_bytes = 0
        self._snapshot_at = math.nan
        self._snapshot_seconds = 0.0
        self._core: Core
        self.commits: Commits

    @property
    def durability(self) -> Durability:
        """How it fares."""
        return Durability(
            whole=self.commits.whole,
            journal_bytes=self.commits.bytes,
            snapshot_bytes=self._snapshot_bytes,
            snapshot_at=self._snapshot_at,
            snapshot_seconds=self._snapshot_seconds,
            failures=self.commits.failures,
        )

    def load(self, make: Callable[[], Core]) -> tuple[Core, Head | None]:
        """The core of the newest snapshot that can be used, and what it says of itself; else a new one.

        May take a while. A snapshot that cannot be used is a WARNING, and the one before is tried. Raises
        ServiceError when it is the state of another site.
        """
        for number in snapshots.numbers(self._directory):
            core = make()
            path = str(self._directory / f"{number:012d}{snapshots.SUFFIX}")
            try:
                head = restore(core, snapshots.read(self._directory, number), path)
            except StateError as exc:
                _log.warning("state: %s", exc)
                continue
            self._journal.next_number = max(self._journal.next_number, number + 1)
            self._from_segment = number
            return core, head
        return make(), None

    def replay(self, core: Core) -> Iterator[TakenBatch | WindowClose | Judgement | Ended]:
        """What came of the entries after the snapshot that `core` is of. May take a while."""
        began, entries = time.monotonic(), 0
        ahead: deque[TakenBatch | WindowClose | Judgement | Ended] = deque()
        for entry in self._journal.entries(self._from_segment):
            entries += 1
            ahead.extend(core.replay(entry))
            if isinstance(entry, ReturnEntry):  # nobody kept it, and nobody shall now
                ahead = deque(
                    r for r in ahead if not (isinstance(r, TakenBatch) and r.ordinal == entry.ordinal)
                )
            while len(ahead) > _AHEAD:
                yield ahead.popleft()
        yield from ahead
        _log.info(
            "state: restored, with %d journaled messages and closes, in %.1f s",
            entries,
            time.monotonic() - began,
        )

    async def begin(
        self, core: Core, run_ns: int, safe: Callable[[int], None], archived: Archived | None = None
    ) -> None:
        """Journals what happens to `core` from now on; `safe` as in Commits. The first snapshot is taken.

        With it the next start will not replay what this one did, so the archive has that first.
        """
        self._core, self._run_ns = core, run_ns
        self.commits = Commits(self._journal, safe, core.ordinals.last)
        core.record(self.commits.record)
        await self.snapshot((), archived)

    async def run(
        self,
        stop: asyncio.Event,
        locked: Sequence[asyncio.Lock],
        archived: Archived | None,
        free_seconds: Callable[[], float],
    ) -> None:
        """Takes snapshots until `stop`. While all of `locked` are held nobody changes the core.

        `free_seconds`: how long there will be nothing that a snapshot would hold up.
        """
        due = self._now() + self._settings.snapshot_seconds
        while not await is_set_within(stop, LOOK_SECONDS):
            late = self._now() - due
            if late >= MOST_POSTPONED_SECONDS or (late >= 0 and free_seconds() >= 2 * self._snapshot_seconds):
                await self.snapshot(locked, archived)
                due = self._now() + self._settings.snapshot_seconds
            elif not self.commits.whole:
                due = min(due, self._now() + RETRY_SECONDS)

    async def snapshot(self, locked: Sequence[asyncio.Lock], archived: Archived | None) -> bool:
        """Takes a snapshot; whether it is on the disk."""
        await self.commits.commit()  # so that little is left for when nothing may come in
        async with AsyncExitStack() as still:
            for lock in locked:
                await still.enter_async_context(lock)
            began = self._clock.monotonic_ns()
            number, token = await self.commits.cut()
            now_ns = self._clock.wall_ns()
            sections = await asyncio.to_thread(capture, self._core, self._run_ns, now_ns)
            self._snapshot_seconds = (self._clock.monotonic_ns() - began) / 1e9
        ordinal = sections[0]["ordinal"]
        try:
            size = await asyncio.to_thread(snapshots.write, self._directory, number, iter(sections))
            if not await self._is_archived(ordinal, archived):
                _log.debug("state: the snapshot waits for the archive")
                await asyncio.to_thread(snapshots.discard, self._directory, number)
                return False
            await asyncio.to_thread(snapshots.publish, self._directory, number)
            self.commits.covered(ordinal, token)
            self._snapshot_bytes, self._snapshot_at = size, now_ns / 1e9
            oldest = await asyncio.to_thread(snapshots.prune, self._directory)
            await self.commits.release(oldest)
        except StateError as exc:
            self.commits.failed(str(exc))
            return False
        return True

    def close(self) -> None:
        """Lets another process use the directory."""
        self._journal.close()
        if self._lock is not None:
            self._lock.close()

    async def _is_archived(self, ordinal: int, archived: Archived | None) -> bool:
        """Whether a snapshot up to `ordinal` may get its name.

        What no journal has is in the archive before that, too: with the name it is acknowledged.
        """
        if archived is None or not self._has_room():
            return True
        await self.commits.settled(ordinal, SETTLE_SECONDS)
        return await archived(ordinal)

    def _has_room(self) -> bool:
        return self.commits.bytes < JOURNAL_SHARE * self._settings.journal_max_bytes

    def _take_lock(self) -> IO[bytes] | None:
        """The directory's lock, None where its disk is full or read-only and nobody can have it."""
        try:
            return file_lock.take_lock(self._directory, "the state is in use by another aggregator")
        except OSError as exc:
            if self._directory.exists() and not self._directory.is_dir():
                raise StateError(str(self._directory), "is not a directory") from exc
            if exc.errno not in _PASSING or not self._directory.exists():
                raise StateError(str(self._directory), exc.strerror or str(exc)) from exc
        return None

    def _now(self) -> float:
        return self._clock.monotonic_ns() / 1e9
