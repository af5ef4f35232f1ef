"""Iterates over unsent batches in the spool, oldest first, coalesced per stream."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from laggard_agent.spool.coalesce import Coalescer
from laggard_agent.spool.delivery_state import Progress
from laggard_agent.spool.segments import Segment, SpooledBatch, batches
from laggard_common import wire
from laggard_common.errors import SpoolError

_log = logging.getLogger(__name__)


class Backlog:
    """One pass over `segments`, including batches appended to the newest one meanwhile."""

    def __init__(self, segments: Iterable[Segment], progress: Progress) -> None:
        self._progress = progress
        self._unsent = self._stored(list(segments))
        self._joiner = Coalescer()
        self._ready: deque[SpooledBatch] = deque()

    def next(self, is_live: Callable[[SpooledBatch], bool]) -> SpooledBatch | None:
        """The next message, None at the end. Live batches (`is_live`) are skipped."""
        while not self._ready:
            stored = next(self._unsent, None)
            if stored is None:
                self._ready.extend(self._joiner.flush())
                break
            if not is_live(stored):
                self._ready.extend(self._joiner.add(stored))
        return self._ready.popleft() if self._ready else None

    def oldest_ns(self) -> int | None:
        """Nominal time of the first remaining batch, None without one; call it before `next`."""
        stored = next(self._unsent, None)
        return None if stored is None else wire.decode_envelope(stored.data).t0_ns

    def _stored(self, segments: list[Segment]) -> Iterator[SpooledBatch]:
        for segment in segments:
            if self._progress.is_all_sent(segment) or self._progress.is_done(segment):
                continue
            try:
                for stored in batches(segment):
                    if not (
                        self._progress.is_acked(stored.key, *stored.seqs)
                        or self._progress.is_sent(stored.key, *stored.seqs)
                    ):
                        yield stored
            except SpoolError as exc:  # deleted meanwhile, or unreadable: continue with the next segment
                _log.debug("spool: %s", exc)
