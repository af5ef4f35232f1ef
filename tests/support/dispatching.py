"""A site whose alarms a test raises and clears, and a dispatcher of its incidents."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from laggard_aggregator.notify.channel import Channel
from laggard_aggregator.notify.dispatcher import Dispatcher
from laggard_common.clock import SystemClock
from tests.support.builders.live_status import MadeView, alarm, group, judgement
from tests.support.wait import async_wait_until

PAGE = "https://laggard.example.org"
POLLS = 12
"""After this many polls of the alarms everything is decided."""


class Site(MadeView):
    """A view that counts the polls of its alarms."""

    polls = 0

    def alarms(self):  # type: ignore[no-untyped-def]
        self.polls += 1
        return super().alarms()

    def slow(self, *names: str, severity: float = 4.0) -> None:
        for name in names:
            one = alarm("luns", name, severity)
            self.alarms_[one.key] = one

    def healthy(self, *names: str) -> None:
        self.alarms_ = {key: one for key, one in self.alarms_.items() if one.component not in names}

    async def polled(self) -> None:
        """Waits until the alarms were polled often enough for everything to be decided."""
        polls = self.polls + POLLS
        await async_wait_until(lambda: self.polls >= polls)


def site() -> Site:
    names = tuple(f"oss-{n}/wwn-{n}" for n in range(1, 8))
    calm = judgement("luns", names, [0] * 7, [1.0] * 7, [False] * 7)
    now = SystemClock().wall_ns() / 1e9
    view = Site(groups_=(group("luns", 7),), judgements_=(calm,), now=now)
    view.names = {name: name.replace("wwn-", "sd") for name in names}
    return view


@asynccontextmanager
async def dispatching(
    view: Site,
    *channels: Channel,
    state: Path | None = None,
    before: Dispatcher | None = None,
    is_right: Callable[[], bool] = lambda: True,
) -> AsyncIterator[Dispatcher]:
    """A dispatcher while the block lasts; then it is cancelled."""
    made = Dispatcher(
        *(channels, "site", PAGE, state),
        clock=SystemClock(),
        rng=random.Random(1),
        before=before,
        is_right=is_right,
    )
    task = asyncio.create_task(made.run(view))
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
