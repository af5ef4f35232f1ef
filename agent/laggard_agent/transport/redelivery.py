"""What the broker took and lost: noticed by what is acknowledged, and put back into the backlog.

A broker that died may have lost what it took. As long as nobody acknowledges, that cannot be told from an
aggregator that is down. Where acknowledgements come but leave something out, it is looked for after a while,
ever less often while the connection lasts, and soon when they pass something over.
"""

import logging
import random
from functools import partial

from laggard_agent.spool.segments import Key
from laggard_agent.spool.spool import Spool
from laggard_agent.spool.worker import Worker
from laggard_common.wire import Ack

_log = logging.getLogger(__name__)

_LEAST_SECONDS = 5.0  # after a connection began, as that is when a broker may have lost something
_MOST_SECONDS = 60.0


class Losses:
    """When to look for losses, and what they are. Times are of one monotonic clock, seconds.

    All but `acknowledged` is called on the event loop; what it does to `spool` happens on `worker`.
    """

    def __init__(self, spool: Spool, worker: Worker, rng: random.Random) -> None:
        self._spool = spool
        self._worker = worker
        self._rng = rng
        self._pause = _LEAST_SECONDS
        self._acks_since_look = False
        self._passed_over = False
        self._unread = False  # what the aggregator has, for want of its schema
        self._oldest: dict[Key, int] = {}
        self.due = 0.0
        """When to look for them."""
        self.acks_seen = False
        """Whether an aggregator ever acknowledged something of ours."""
        self.acks_in_connection = False
        """Whether one did over the present connection, or the last."""

    @property
    def suspected(self) -> bool:
        """Whether there is a reason to `look_soon`."""
        return self._passed_over or self._unread

    def acknowledged(self, ack: Ack) -> None:
        """An acknowledgement came. Called on the spool's thread."""
        if self._spool.acknowledge((ack.stream, ack.source), ack.ranges):
            self.acks_seen = True
            self._acks_since_look = True
            self.acks_in_connection = True
            self._unread |= not ack.ranges
            self._passed_over |= self._spool.is_passed_over((ack.stream, ack.source))

    async def connected(self, now: float) -> None:
        """A connection begins. A broker that died may have lost what it took: if acknowledgements came over
        the connection before, what they did not cover is sent again now, and not only after a while.
        """
        self._pause = _LEAST_SECONDS
        self.due = now + self._pause
        oldest = await self._worker.call(self._spool.oldest_unacknowledged)
        if self.acks_in_connection:
            await self._worker.call(partial(self._spool.resend, list(oldest)))
        self.acks_in_connection = False

    def look_soon(self, now: float, *, idle: bool) -> None:
        """Something later than what the broker took was acknowledged, and not that: it may be lost. Or it is
        there, and the schema that reads it is lost.

        What is behind live data may just be on its way, and is looked for as ever unless that is `idle`.
        """
        sure, self._unread, self._passed_over = self._unread, False, False
        if sure or idle:
            soon = now + _LEAST_SECONDS * self._rng.uniform(1.0, 1.5)
            self.due = min(self.due, soon)

    async def look(self, now: float) -> list[Key]:
        """Puts back what the broker took a while ago, when an aggregator acknowledges but not that.

        The streams of which something is sent again; their schemas have to be, too.
        """
        self._pause = min(2 * self._pause, _MOST_SECONDS)
        self.due = now + self._pause * self._rng.uniform(1.0, 1.5)
        oldest = await self._worker.call(self._spool.oldest_unacknowledged)
        stuck = [key for key, seq in oldest.items() if self._oldest.get(key) == seq]
        heard, self._acks_since_look = self._acks_since_look, False
        self._oldest = oldest
        if not stuck or not heard:
            return []
        _log.info("sending again what was not acknowledged")
        await self._worker.call(partial(self._spool.resend, stuck))
        return stuck
