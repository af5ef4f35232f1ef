"""Looks at the alarms that stand, decides who is to be told of what, and has it sent.

What was decided is in the ledger before anything is sent; so a restart in the middle neither loses a mail nor
writes it again. Nothing here can stop the aggregator: whatever cannot be written or sent is tried again.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from laggard_aggregator.notify.email.message import MAX_LISTED, Writer
from laggard_aggregator.notify.email.plot import drawn
from laggard_aggregator.notify.email.settings import Access, MailSettings, spec
from laggard_aggregator.notify.incidents import Case, digest, due, over
from laggard_aggregator.notify.outbox import Ledger, Queued, SharedLedger, Told
from laggard_aggregator.notify.report import endings, report
from laggard_aggregator.notify.timelines import Courses
from laggard_aggregator.notify.worker import Sender
from laggard_aggregator.status.view import Status
from laggard_common.clock import Clock
from laggard_common.errors import StateError

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
RETRY_SECONDS = 60.0
"""How soon a decision is tried again that could not be noted."""
SAVE_SECONDS = 600.0
HOUR = 3600.0
KEEP_SECONDS = 7 * 86_400.0
MAX_WAITING = 100
"""Of more mails that wait for the server none are written; what falls due then is told in one digest."""


class Post:
    """The mails of one site.

    What an operator silenced or drained is told when that has ended, if the alarm still stands.
    """

    def __init__(
        self,
        settings: MailSettings,
        access: Access,
        site: str,
        directory: Path | None,
        *,
        clock: Clock,
        rng: random.Random,
        before: "Post | None" = None,
    ) -> None:
        """`directory`: of the state, None where there is none; then a restart tells again what stands.

        `before`: the post of the previous configuration in the same process.
        """
        self.sender = Sender(settings, access, clock, rng)
        self._settings = settings
        self._site = site
        self._directory = directory
        self._in_memory: Ledger | None = before._in_memory if before is not None else None
        self._clock = clock
        self._told: dict[str, Told] = {}
        self._began_at = 0.0
        self._fresh = _Gathering(settings.gather_seconds)
        self._over = _Gathering(settings.gather_seconds)
        self._held = False

    async def run(self, view: Status, page: str) -> None:
        """Tells what is to be told until cancelled. `page`: where the site's pages are reached."""
        ledger, courses = await self._opened()
        shared, writer = SharedLedger(ledger), Writer(self._settings, self._site, page)
        sending = partial(self.sender.run, shared)
        looking = partial(self._look, view, shared, courses, writer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_lasting(sending), name="mails out")
                group.create_task(_lasting(looking), name="alarms to mails")
        finally:
            await self._kept(shared, courses)
            await shared.leave(close=self._in_memory is None)

    async def _opened(self) -> tuple[Ledger, Courses]:
        """The ledger, as soon as it can be had, and the courses in it."""
        said = ""
        while True:
            try:
                return await asyncio.to_thread(self._open)
            except StateError as exc:
                if str(exc) != said:
                    _log.warning("no mails until it is: %s", exc)
                said = str(exc)
                await asyncio.sleep(RETRY_SECONDS)

    def _open(self) -> tuple[Ledger, Courses]:
        """Opens the ledger, and takes up what it knows. Raises StateError."""
        ledger = self._in_memory or Ledger(self._directory, self._clock.wall_ns() / 1e9)
        try:
            self._began_at = ledger.began_at
            self._told = {told.case.component: told for told in ledger.open_cases()}
            courses = Courses(ledger.courses())
        except StateError:
            ledger.close()
            raise
        if self._directory is None:
            self._in_memory = ledger
        return ledger, courses

    async def _look(self, view: Status, ledger: SharedLedger, courses: Courses, writer: Writer) -> None:
        save_due, prune_due, said, revision = 0.0, 0.0, "", -1
        while True:
            seconds, now = LOOK_SECONDS, self._now()
            try:
                news, revision = view.revision != revision, view.revision
                if (news and courses.look(view)) or now >= save_due:
                    save_due = now + SAVE_SECONDS
                    await ledger.do(Ledger.keep_courses, courses.state())
                if now >= prune_due:
                    prune_due = now + HOUR
                    await ledger.do(Ledger.prune, view.now - KEEP_SECONDS)
                await self._decide(view, ledger, courses, writer)
                said = ""
            except StateError as exc:
                if str(exc) != said:
                    _log.warning("no new mails until it is: %s", exc)
                said, seconds = str(exc), RETRY_SECONDS
            await asyncio.sleep(seconds)

    async def _decide(self, view: Status, ledger: SharedLedger, courses: Courses, writer: Writer) -> None:
        s = self._settings
        fresh = due(
            view.alarms(),
            self._told.keys(),
            view.shown,
            after_seconds=s.after_seconds,
            least_severity=s.least_severity,
            muted=lambda alarm: _silenced(view, alarm.component, view.shown(alarm.component)),
        )
        ended = over([told.case for told in self._told.values()], view.alarms())
        silent = [case for case in ended if not s.resolved or _silenced(view, case.component, case.name)]
        if silent:
            await self._close_silently(ledger, silent)
        if abs(view.now - self._began_at) < s.learning_seconds:  # the first clock may have been ahead
            fresh = []
        ended = [case for case in ended if case not in silent]
        if self._fresh.complete(bool(fresh), self._now()):
            await self._tell(fresh, view, ledger, courses, writer)
        if self._over.complete(bool(ended), self._now()):
            await self._resolve(ended, view, ledger, writer)

    async def _tell(
        self, fresh: list[Case], view: Status, ledger: SharedLedger, courses: Courses, writer: Writer
    ) -> None:
        """Writes of each case, or one digest of all, and notes both before anything is sent."""
        now = view.now
        for cases in await self._in_mails(fresh, ledger, now):
            reports = [
                report(case, view, courses, writer.page) for case in cases[:MAX_LISTED] if _stands(case, view)
            ]
            if not reports:
                continue
            ids = [case.id(self._site) for case in cases]
            plot = await drawn(reports[0])
            if len(cases) == 1:
                id_ = f"s.{ids[0]}"
                message = await asyncio.to_thread(writer.straggler, id_, reports[0], plot)
            else:
                id_ = f"d.{digest(*ids)}"
                message = await asyncio.to_thread(writer.digest, id_, reports, len(cases), plot)
            told = [Told(of, case, now, id_) for of, case in zip(ids, cases, strict=True)]
            await ledger.do(Ledger.queue, self._queued(id_, now, message), told)
            self._told.update({each.case.component: each for each in told})
            self.sender.some.set()
            _log.info("mail %s tells of %s and %d others", id_, reports[0].name, len(cases) - 1)

    async def _resolve(self, ended: list[Case], view: Status, ledger: SharedLedger, writer: Writer) -> None:
        """Writes that cases are over."""
        now = view.now
        for cases in await self._in_mails(ended, ledger, now):
            told = [self._told[case.component] for case in cases]
            ids = [each.id for each in told]
            id_ = f"r.{digest(*ids)}"
            listed = endings(cases[:MAX_LISTED], view, writer.page)
            told_by = list(dict.fromkeys(each.mail for each in told if each.mail))
            message = await asyncio.to_thread(writer.resolved, id_, listed, len(cases), told_by)
            await ledger.do(Ledger.queue, self._queued(id_, now, message), [], ids)
            for case in cases:
                del self._told[case.component]
            self.sender.some.set()

    async def _close_silently(self, ledger: SharedLedger, cases: list[Case]) -> None:
        """Closes cases without a mail."""
        await ledger.do(Ledger.close_cases, [self._told[case.component].id for case in cases])
        for case in cases:
            del self._told[case.component]

    async def _in_mails(self, cases: list[Case], ledger: SharedLedger, now: float) -> list[list[Case]]:
        """Which cases go together in a mail: each by itself, or all when they are many; none for now.

        What may not be told now is told later, together.
        """
        queued = await ledger.do(Ledger.queued_since, now - HOUR)
        room = self._settings.most_per_hour - queued
        if room <= 0 or self.sender.waiting >= MAX_WAITING:
            if not self._held:
                waiting = self.sender.waiting
                _log.warning("%d mails in the last hour, %d wait: the rest is told later", queued, waiting)
            self._held = True
            return []
        together = self._held or len(cases) > min(self._settings.digest_over, room)
        self._held = False
        return [cases] if together else [[case] for case in cases]

    async def _kept(self, ledger: SharedLedger, courses: Courses) -> None:
        try:
            await ledger.do(Ledger.keep_courses, courses.state())
        except StateError as exc:
            _log.debug("courses are not kept: %s", exc)

    def _queued(self, id_: str, now: float, message: bytes) -> Queued:
        return Queued(id_, now, tuple(spec(each) for each in self._settings.recipients), message)

    def _now(self) -> float:
        return self._clock.monotonic_ns() / 1e9


async def _lasting(work: Callable[[], Awaitable[None]]) -> None:
    """Does `work`, and again after an error that nobody thought of: detection goes on without mails."""
    while True:
        try:
            await work()
        except Exception:
            _log.exception("mails are held up by an error in the program, which is tried again")
            await asyncio.sleep(RETRY_SECONDS)


class _Gathering:
    """Waits a little for what comes together."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None

    def complete(self, some: bool, now: float) -> bool:
        """Whether there is something, and has been for long enough; after that it begins anew."""
        if not some:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        if now - self._since < self._seconds:
            return False
        self._since = None
        return True


def _silenced(view: Status, *names: str) -> bool:
    return view.silenced(*names) is not None


def _stands(case: Case, view: Status) -> bool:
    """Whether an alarm of the case's component still stands."""
    return any(component == case.component for _, component, _ in view.alarms())
