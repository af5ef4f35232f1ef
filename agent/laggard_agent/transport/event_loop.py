"""The agent's event loop: relative delays of a second and more are coarse, absolute times are exact.

aiomqtt checks its keepalive once a second. An idle process that wakes up finds cold caches, so each check
costs about 0.2 ms of CPU time; coarse delays let it run every five seconds. A ping is then sent after 30 to
35 s of silence; brokers wait one and a half times the keepalive, 45 s.
"""

import asyncio
import math
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

Ts = TypeVarTuple("Ts")

_COARSE_FROM_SECONDS = 1.0
_GRID_SECONDS = 5.0


class CoarseEventLoop(asyncio.SelectorEventLoop):
    """Ends each `call_later` of a second and more at a multiple of five seconds, so at most that much late.

    `call_at`, and with it `asyncio.timeout`, is exact. `asyncio.sleep` and the time-outs of `asyncio.wait`
    and `wait_for` are relative delays.
    """

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Calls `callback` after `delay` seconds, or up to five seconds later if it is at least one."""
        when = self.time() + delay
        if delay >= _COARSE_FROM_SECONDS:
            when = math.ceil(when / _GRID_SECONDS) * _GRID_SECONDS
        return self.call_at(when, callback, *args, context=context)
