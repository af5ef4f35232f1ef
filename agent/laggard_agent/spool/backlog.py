"""What is in the spool and was not sent yet, oldest first, batches of a stream joined where they can be."""

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
    """Goes once through `segments` as they are now; what is appended to the newest one comes, too."""

    def __init__(self, segments: Iterable[Segment], progress: Progress) -> None:
        self._progress = progress
        self._unsent = self._stored(list(segments))
        self._joiner = Coalescer()
        self._ready: deque[SpooledBatch] = deque()

    def next(self, is_live: Callable[[SpooledBatch], bool]) -> SpooledBatch | None:
        """The next message, None at the end. Batches that `is_live` are left out."""
        while not self._ready:
            stored = next(self._unsent, None)
            if stored is None:
                self._ready.extend(self._joiner.flush())
                break
            if not is_live(stored):
                self._ready.extend(self._joiner.add(stored))
        return self._ready.popleft() if self._ready else None

    def oldest_ns(self) -> int | None:
        """The nominal time of the first batch that is left, None when there is none; to be asked at first."""
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
            except SpoolError as exc:  # deleted meanwhile, or unreadable: the next segment may do better
                _log.debug("spool: %s", exc)
