"""Redelivery of batches that the broker took and lost.

A broker that crashed may have lost messages that it acknowledged. Without acknowledgements from an
aggregator such a loss looks like an aggregator that is down, so nothing is redelivered. With them,
unacknowledged batches are redelivered at growing intervals, and soon when an acknowledgement skips a batch or
says that their schema is missing.
"""

import logging
import random
from functools import partial

from laggard_agent.spool.segments import Key
from laggard_agent.spool.spool import Spool
from laggard_agent.spool.worker import Worker
from laggard_common.wire import Ack

_log = logging.getLogger(__name__)

_LEAST_SECONDS = 5.0  # after the start of a session, when a loss is most likely
_MOST_SECONDS = 60.0


class Redelivery:
    """Finds the streams with lost batches. Times are seconds of one monotonic clock.

    Methods run on the event loop, except `acknowledged`. Jobs on `spool` run on `worker`.
    """

    def __init__(self, spool: Spool, worker: Worker, rng: random.Random) -> None:
        self._spool = spool
        self._worker = worker
        self._rng = rng
        self._interval = _LEAST_SECONDS
        self._acks_since_find = False
        self._skipped = False
        self._schema_missing = False
        self._unreadable: set[Key] = set()  # streams whose schema the aggregator lacked in its last word
        self._oldest: dict[Key, int] = {}
        self.due = 0.0
        """Time of the next `find`."""
        self.acks_seen = False
        """Whether an aggregator ever acknowledged a batch of this node."""
        self.acks_in_connection = False
        """Whether it did so over the current connection, or the last one."""

    @property
    def suspected(self) -> bool:
        """Whether to call `check_soon`."""
        return self._skipped or self._schema_missing

    def acknowledged(self, ack: Ack) -> None:
        """Applies an acknowledgement to the spool, on the spool's thread.

        Empty ranges report that the aggregator lacks the schema.
        """
        key = ack.stream, ack.source
        if self._spool.acknowledge(key, ack.ranges):
            self.acks_seen = True
            self._acks_since_find = True
            self.acks_in_connection = True
            self._schema_missing |= not ack.ranges
            (self._unreadable.discard if ack.ranges else self._unreadable.add)(key)
            self._skipped |= self._spool.queue.is_passed_over(key)

    async def connected(self, now: float) -> None:
        """Starts a session. Redelivers at once if the last session carried acknowledgements: its broker may
        have crashed.
        """
        self._interval = _LEAST_SECONDS
        self.due = now + self._interval
        # On the worker, so after the acknowledgements before it.
        oldest = await self._worker.call(self._spool.queue.oldest_unacknowledged)
        if self.acks_in_connection:
            await self._worker.call(partial(self._spool.resend, list(oldest)))
        self.acks_in_connection = False

    def check_soon(self, now: float, *, idle: bool) -> None:
        """Moves `find` forward: an acknowledgement skipped a batch, or the aggregator lacks a schema.

        A skipped batch may still be on its way as backlog, so it counts only when the backlog is `idle`.
        """
        certain, self._schema_missing, self._skipped = self._schema_missing, False, False
        if certain or idle:
            self.due = min(self.due, now + _LEAST_SECONDS * self._rng.uniform(1.0, 1.5))

    async def find(self, now: float) -> list[Key]:
        """Returns lost batches to the backlog: unacknowledged at two calls with acknowledgements between.

        Without its schema all of a stream is lost, also where a full spool dropped its oldest batch.
        The result is the list of streams, whose schemas must be published again, too.
        """
        self._interval = min(2 * self._interval, _MOST_SECONDS)
        self.due = now + self._interval * self._rng.uniform(1.0, 1.5)
        oldest = await self._worker.call(self._spool.queue.oldest_unacknowledged)
        unreadable, self._unreadable = self._unreadable, set()
        lost = [key for key, seq in oldest.items() if self._oldest.get(key) == seq or key in unreadable]
        acked, self._acks_since_find = self._acks_since_find, False
        self._oldest = oldest
        if not lost or not acked:
            return []
        _log.info("sending the unacknowledged batches again")
        await self._worker.call(partial(self._spool.resend, lost))
        return lost
