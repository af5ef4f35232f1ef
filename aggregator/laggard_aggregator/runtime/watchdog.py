"""What the service manager hears of a running aggregator: a sign of life only while its loops get on."""

import asyncio
from collections.abc import Callable

from laggard_common.daemon.sd_notify import Notifier

STATUS_SECONDS = 10.0
SIGNS_A_WATCHDOG = 4


class Liveness:
    """Passes on that every one of `loops` has gone round since the last sign of life.

    A loop that has nothing to do need not go round: `idle(loop)` says so. `status` makes the line that
    describes the service.
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
        self._moved: set[str] = set()

    def moved(self, loop: str) -> None:
        """Notes that a loop has gone round."""
        self._moved.add(loop)

    def look(self) -> bool:
        """Whether the loops got on since they were last found to, which the manager is told then."""
        if not all(loop in self._moved or self._idle(loop) for loop in self._loops):
            return False
        self._moved.clear()
        self._notifier.alive()
        return True

    async def run(self) -> None:
        """Says that the service is ready, and then how it is, until cancelled."""
        self._notifier.ready(self._status())
        seconds = STATUS_SECONDS
        if self._notifier.watchdog_seconds is not None:
            seconds = min(seconds, self._notifier.watchdog_seconds / SIGNS_A_WATCHDOG)
        while True:
            await asyncio.sleep(seconds)
            self._notifier.status(self._status())
            self.look()
