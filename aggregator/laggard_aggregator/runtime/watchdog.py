"""Keep-alives to the service manager while the loops make progress."""

import asyncio
from collections.abc import Callable

from laggard_common.daemon.sd_notify import Notifier

STATUS_SECONDS = 10.0
CHECKS_PER_WATCHDOG = 4


class Watchdog:
    """Sends a keep-alive each time that all of `loops` made progress since the last one.

    `idle(loop)`: whether the loop has nothing to do. `status`: the service's status line.
    """

    def __init__(
        self,
        notifier: Notifier,
        loops: tuple[str, ...],
        *,
        idle: Callable[[str], bool],
        status: Callable[[], str],
    ) -> None:
        self._notifier = notifier
        self._loops = loops
        self._idle = idle
        self._status = status
        self._progressed: set[str] = set()

    def progress(self, loop: str) -> None:
        """Notes an iteration of a loop."""
        self._progressed.add(loop)

    def check(self) -> bool:
        """Sends a keep-alive if all loops made progress or are idle; whether it did."""
        if not all(loop in self._progressed or self._idle(loop) for loop in self._loops):
            return False
        self._progressed.clear()
        self._notifier.alive()
        return True

    async def run(self) -> None:
        """Reports readiness, then the status and keep-alives until cancelled."""
        self._notifier.ready(self._status())
        seconds = STATUS_SECONDS
        if self._notifier.watchdog_seconds is not None:
            seconds = min(seconds, self._notifier.watchdog_seconds / CHECKS_PER_WATCHDOG)
        while True:
            await asyncio.sleep(seconds)
            self._notifier.status(self._status())
            self.check()
