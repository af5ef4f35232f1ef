"""Keep-alives to the service manager while the loops make progress."""

import asyncio
from collections.abc import Callable, Sequence

from laggard_common.daemon.sd_notify import Notifier

STATUS_SECONDS = 10.0
CHECKS_PER_WATCHDOG = 4


class Watchdog:
    """Sends a keep-alive each time that every loop made progress since the last one.

    `progress()`: iterations of each loop so far, None for a loop without work. `status`: the status line.
    """

    def __init__(
        self,
        notifier: Notifier,
        *,
        progress: Callable[[], Sequence[int | None]],
        status: Callable[[], str],
    ) -> None:
        self._notifier = notifier
        self._progress = progress
        self._status = status
        self._seen: Sequence[int] = ()

    def check(self) -> bool:
        """Sends a keep-alive if all loops made progress or are idle; whether it did."""
        now = self._progress()
        seen = self._seen or (0,) * len(now)
        if any(count == before for count, before in zip(now, seen, strict=True)):
            return False
        self._seen = [before if count is None else count for count, before in zip(now, seen, strict=True)]
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
