"""The simulated mail server, and the outbox as a killed process leaves it."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import BytesHeaderParser
from typing import Any

from bench.simulation.processes import Killed, current
from laggard_aggregator.notify.channel import Delivery, UnavailableError
from laggard_aggregator.notify.outbox import Outbox

_SECONDS = 0.4
"""Until a mail is accepted, and again until the sender knows."""


class SimulatedMailServer:
    """`down`: it takes no mail. `unconfirmed`: share of mails that it accepts without a word.

    `accepted`: times at which it accepted a mail, by the mail's id; `answered`: how often it said so.
    """

    def __init__(self) -> None:
        self.down = False
        self.unconfirmed = 0.0
        self.accepted: dict[str, list[float]] = defaultdict(list)
        self.answered: dict[str, int] = defaultdict(int)

    async def send(self, message: bytes, recipients: tuple[str, ...]) -> Delivery:
        """As `Channel.send`."""
        del recipients
        loop = asyncio.get_running_loop()
        process = current()
        await asyncio.sleep(_SECONDS)
        if self.down:
            raise UnavailableError("connection refused")
        name = str(BytesHeaderParser().parsebytes(message)["Message-ID"])
        id_ = name.removeprefix("<laggard.").partition("@")[0]
        self.accepted[id_].append(loop.time())
        if process.host.rng.random() < self.unconfirmed:
            await asyncio.sleep(10 * _SECONDS)
            raise UnavailableError("no answer")
        await asyncio.sleep(_SECONDS)
        self.answered[id_] += 1
        return Delivery()


class SimulatedOutbox(Outbox):
    """An outbox whose process can be killed before and after each transaction, and never within.

    SQLite is trusted to keep its files whole.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        current().on_death.append(self._db.close)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        process = current()
        if process.operation():
            raise Killed
        with super()._transaction() as db:
            yield db
        if process.operation():
            raise Killed
