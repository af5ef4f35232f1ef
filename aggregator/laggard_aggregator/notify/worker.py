"""Gets queued mails to the server, in order, however often it takes.

A server that is away, or does not let us in, keeps all mails waiting; a mail that it refuses for now (4yz)
waits alone, with what says that it is over for those who do not have it yet; one that it refuses for good
(5yz) is given up, as are those that waited for GIVE_UP_SECONDS.
"""

import asyncio
import logging
import random
from collections import Counter
from contextlib import suppress

from laggard_aggregator.notify.email.message import answered
from laggard_aggregator.notify.email.settings import Access, MailSettings
from laggard_aggregator.notify.email.smtp import Connection, connected
from laggard_aggregator.notify.outbox import Ledger, Outcome, Queued, SharedLedger
from laggard_common.clock import Clock
from laggard_common.errors import ServiceError, StateError

_log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 15.0
LAST_RETRY_SECONDS = 900.0
GIVE_UP_SECONDS = 5 * 86_400.0
"""As RFC 5321 (4.5.4.1) has it for mail servers."""
LEAST_TRYING_SECONDS = 3600.0
"""So long this process tries in any case: a wall clock that was set ahead by days is no outage."""
FINISH_SECONDS = 5.0
"""At the end a mail under way has so long to be taken and noted."""
IDLE_SECONDS = 60.0

RESULTS = ("sent", "retried", "refused", "expired")
"""What `laggard_mails_total` counts: `retried` is each try that has to be made again."""


class Sender:
    """Sends what the ledger has. `some` is set when there may be more. `counts`: see RESULTS."""

    def __init__(
        self,
        settings: MailSettings,
        access: Access,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.some = asyncio.Event()
        self.counts: Counter[str] = Counter(dict.fromkeys(RESULTS, 0))
        self.waiting = 0
        self._settings = settings
        self._access = access
        self._clock = clock
        self._rng = rng
        self._ended: dict[str, Outcome] = {}  # what the ledger does not know yet
        self._still_for: dict[str, tuple[str, ...]] = {}
        self._do_not_have: dict[str, tuple[str, ...]] = {}  # of each mail that waits
        self._seen: dict[str, tuple[float, float]] = {}  # when first, and how old it was then
        self._tries: Counter[str] = Counter()
        self._not_before: dict[str, float] = {}
        self._failures = 0
        self._said = ""
        self._ending = False

    async def run(self, ledger: SharedLedger) -> None:
        """Sends until cancelled; what is under way then is brought to an end."""
        while True:
            self.some.clear()
            seconds = IDLE_SECONDS
            try:
                await self._note(ledger)
                due = await self._due(ledger)
                if due:
                    await self._send(ledger, due)
                    self._works()
                self._failures = 0
                if self._not_before:
                    seconds = max(min(self._not_before.values()) - self._now(), 0.1)
            except ServiceError as exc:
                seconds = self._later("", str(exc))
            except StateError as exc:
                seconds = self._later("", str(exc), counts=False)
            if self._failures:  # news do not make a server come back
                await asyncio.sleep(seconds)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.some.wait()

    async def _due(self, ledger: SharedLedger) -> list[Queued]:
        """The mails to be tried now; those that waited for too long are given up."""
        waiting = await ledger.do(Ledger.waiting)
        now = self._now()
        self._seen = {m.id: self._seen.get(m.id) or (now, self._wall() - m.queued_at) for m in waiting}
        expired = [mail for mail in waiting if self._waited_too_long(*self._seen[mail.id])]
        for mail in expired:
            _log.warning("mail %s is given up: it could not be sent for days", mail.id)
            await self._end(ledger, mail, "expired")
        left = [mail for mail in waiting if mail not in expired]
        self.waiting = len(left)
        known = {mail.id for mail in left}
        self._not_before = {id_: at for id_, at in self._not_before.items() if id_ in known}
        self._do_not_have = {mail.id: mail.recipients for mail in left}
        due = [mail for mail in left if self._not_before.get(mail.id, 0.0) <= self._now()]
        return due if any(self._ready_for(mail) for mail in due) else []

    def _waited_too_long(self, seen: float, age: float) -> bool:
        tried = self._now() - seen
        return tried > LEAST_TRYING_SECONDS and age + tried > GIVE_UP_SECONDS

    def _ready_for(self, mail: Queued) -> tuple[str, ...]:
        """Who may get the mail now: nobody hears that something is over before hearing of it."""
        others = len(self._do_not_have) > 1
        earlier = answered(mail.message, self._settings) if others else ()
        first = {who for id_ in earlier for who in self._do_not_have.get(id_, ())}
        return tuple(who for who in mail.recipients if who not in first)

    async def _send(self, ledger: SharedLedger, mails: list[Queued]) -> None:
        """Sends them in a task of its own: what cancels us must not get lost in the SMTP client."""
        session = asyncio.create_task(self._session(ledger, mails), name="smtp")
        try:
            await asyncio.shield(session)
        except asyncio.CancelledError:
            self._ending = True
            await asyncio.wait({session}, timeout=FINISH_SECONDS)
            session.cancel()
            session.add_done_callback(lambda task: task.cancelled() or task.exception())
            raise

    async def _session(self, ledger: SharedLedger, mails: list[Queued]) -> None:
        async with connected(self._settings, self._access) as connection:
            for mail in mails:
                if self._ending:
                    return
                await self._one(ledger, connection, mail)

    async def _one(self, ledger: SharedLedger, connection: Connection, mail: Queued) -> None:
        recipients = self._ready_for(mail)
        if not recipients:
            return
        result = await connection.deliver(mail.message, recipients)
        have = set(recipients) - {*result.later, *result.never}
        for who, said in result.never.items():
            _log.warning("mail %s is refused for %s: %s", mail.id, who, said)
        left = tuple(who for who in mail.recipients if who in result.later or who not in recipients)
        if not left:
            await self._end(ledger, mail, "sent" if have else "refused")
            return
        if result.later:
            self._not_before[mail.id] = self._now() + self._later(mail.id, next(iter(result.later.values())))
        self._still_for[mail.id] = self._do_not_have[mail.id] = left
        await self._note(ledger)

    async def _end(self, ledger: SharedLedger, mail: Queued, outcome: Outcome) -> None:
        """Notes an outcome; what cannot be noted now is noted before anything else is sent."""
        self.waiting = max(self.waiting - 1, 0)
        self._not_before.pop(mail.id, None)
        self._do_not_have.pop(mail.id, None)
        self._tries.pop(mail.id, None)
        self._ended[mail.id] = outcome
        _log.log(logging.INFO if outcome == "sent" else logging.DEBUG, "mail %s: %s", mail.id, outcome)
        await self._note(ledger)

    async def _note(self, ledger: SharedLedger) -> None:
        for id_, outcome in list(self._ended.items()):
            await ledger.do(Ledger.ended, id_, outcome)
            self.counts[outcome] += 1
            del self._ended[id_]
        for id_, recipients in list(self._still_for.items()):
            await ledger.do(Ledger.still_for, id_, recipients)
            del self._still_for[id_]

    def _later(self, mail: str, reason: str, *, counts: bool = True) -> float:
        """Seconds until the next try, of everything or of one mail: longer each time, and never the same."""
        if counts:
            self.counts["retried"] += 1
        if mail:
            tries = self._tries[mail] = self._tries[mail] + 1
            _log.info("mail %s has to wait: %s", mail, reason)
        else:
            tries = self._failures = self._failures + 1
            if reason != self._said:
                _log.warning("mails have to wait, %s: %s", self._settings.address, reason)
            self._said = reason
        seconds = min(FIRST_RETRY_SECONDS * 2.0 ** min(tries - 1, 16), LAST_RETRY_SECONDS)
        return seconds * self._rng.uniform(0.8, 1.2)

    def _works(self) -> None:
        if self._said:
            _log.info("%s takes mails again", self._settings.address)
        self._said = ""

    def _now(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    def _wall(self) -> float:
        return self._clock.wall_ns() / 1e9
