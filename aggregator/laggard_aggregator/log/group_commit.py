"""The journal as the event loop sees it: entries are taken at once, and are safe after the next group fsync.

One fsync covers everything that came while the one before was under way, and GROUP_SECONDS. A journal that
cannot be written, is full or too slow takes nothing more until a snapshot covers what it has missed: then
everything up to that snapshot is safe. What is not safe is not acknowledged, and its agents keep it.
"""

import asyncio
import logging
from collections.abc import Callable

from laggard_aggregator.log.entries import BatchEntry, Entry, SchemaEntry
from laggard_aggregator.log.journal import Journal
from laggard_common.errors import StateError

_log = logging.getLogger(__name__)

GROUP_SECONDS = 0.02
MAX_WAITING_BYTES = 64 * 1024 * 1024
_ENTRY_BYTES = 200
"""What an entry takes in memory besides its message."""


class Commits:
    """Group commits to `journal`. `safe(ordinal)` is told how far everything is safe whenever that grows.

    Until the first `covered` nothing is: the journal alone does not say what was before it.
    """

    def __init__(self, journal: Journal, safe: Callable[[int], None], last_ordinal: int) -> None:
        self.failures = 0
        self.bytes = 0
        self._journal = journal
        self._safe = safe
        self._safe_until = last_ordinal
        self._waiting: list[Entry] = []
        self._waiting_bytes = 0
        self._written = last_ordinal
        self._broken = True
        self._said = False
        self._breaks = 0
        self._whole_since = -1  # the break that a snapshot has covered
        self._some = asyncio.Event()
        self._progress = asyncio.Event()
        self._busy = asyncio.Lock()

    @property
    def whole(self) -> bool:
        """Whether what comes now will be safe after the next group fsync."""
        return not self._broken and self._whole_since == self._breaks

    @property
    def safe_until(self) -> int:
        """Everything up to this ordinal is safe."""
        return self._safe_until

    def record(self, entry: Entry) -> None:
        """Takes an entry; never waits."""
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
        self._some.set()

    async def run(self, ended: asyncio.Event) -> None:
        """Commits until `ended`, and what waits then."""
        end = asyncio.create_task(ended.wait())
        try:
            while not ended.is_set():
                some = asyncio.create_task(self._some.wait())
                await asyncio.wait({some, end}, return_when=asyncio.FIRST_COMPLETED)
                some.cancel()
                if not ended.is_set():
                    await asyncio.sleep(GROUP_SECONDS)
                await self.commit()
        finally:
            end.cancel()

    async def commit(self) -> None:
        """Writes what waits, and waits until it is on the disk."""
        async with self._busy:
            self._some.clear()
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
            self._written = max(self._written, entries[-1].ordinal)
            if self._whole_since == breaks:
                self._is_safe(self._written)

    async def settled(self, ordinal: int, seconds: float) -> None:
        """Waits until `ordinal` is safe, or will not be soon; at most so long."""
        try:
            async with asyncio.timeout(seconds):
                while self._safe_until < ordinal and self.whole:
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            _log.debug("a group commit takes more than %.0f s", seconds)

    async def cut(self) -> tuple[int, int]:
        """Begins a new segment for everything that is recorded from now on: its number, and a token.

        The caller sees to it that nothing is recorded meanwhile.
        """
        await self.commit()
        async with self._busy:
            try:
                number = await asyncio.to_thread(self._journal.begin)
                self._broken = False
            except StateError as exc:
                number = self._journal.next_number
                self._break(str(exc))
            return number, self._breaks

    def covered(self, ordinal: int, token: int) -> None:
        """Takes in that a snapshot up to `ordinal`, for which `cut` gave `token`, is on the disk."""
        if token == self._breaks and not self._broken:
            self._whole_since = self._breaks
            if self._said:
                _log.info("the state is written again: batches are acknowledged")
            self._said = False
            ordinal = max(ordinal, self._written)
        self._is_safe(ordinal)

    def failed(self, reason: str) -> None:
        """Takes in that a snapshot could not be written."""
        self.failures += 1
        if not self.whole:
            self._say(reason)

    async def release(self, number: int) -> None:
        """Deletes the segments before `number`. Raises StateError."""
        async with self._busy:
            await asyncio.to_thread(self._journal.release, number)
            self.bytes = self._journal.size_bytes

    def close(self) -> None:
        """To be called when `run` is over."""
        self._journal.close()

    def _break(self, reason: str) -> None:
        self.failures += 1
        self._broken = True
        self._breaks += 1
        self._progress.set()
        self._say(reason)

    def _say(self, reason: str) -> None:
        if not self._said:
            _log.warning("%s: batches are not acknowledged until the state is written again", reason)
        self._said = True

    def _is_safe(self, ordinal: int) -> None:
        if ordinal > self._safe_until:
            self._safe_until = ordinal
            self._safe(ordinal)
        self._progress.set()
