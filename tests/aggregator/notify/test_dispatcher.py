"""From standing alarms to mails on a real server: who is told of what, once, whatever happens meanwhile."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from laggard_aggregator.alarms.alarms import Key
from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.notify import dispatcher
from laggard_aggregator.notify.dispatcher import Dispatcher
from laggard_aggregator.notify.email.channel import MailChannel
from laggard_aggregator.notify.outbox import NAME, Outbox, QueuedMessage
from laggard_aggregator.status.location import Location
from tests.support.builders.live_status import NOW, judgement
from tests.support.dispatching import PAGE, Site, dispatching, site
from tests.support.smtp import Box, served, settings
from tests.support.wait import async_wait_until


@asynccontextmanager
async def mailing(
    view: Site, box: Box, state: Path | None = None, before: Dispatcher | None = None, **others: object
) -> AsyncIterator[Dispatcher]:
    """A dispatcher with the mail channel while the block lasts; then it is cancelled."""
    async with dispatching(
        view, MailChannel(settings(box.port, **others)), state=state, before=before
    ) as made:
        yield made


def test_one_mail_an_episode_and_one_when_it_is_over() -> None:
    async def story() -> None:
        view = site()
        async with served(Box()) as box, mailing(view, box) as at_work:
            view.slow("oss-1/wwn-1")
            await box.until(mails=1)
            await view.polled()
            view.healthy("oss-1/wwn-1")
            await box.until(mails=2)
            await view.polled()
            told, over = box.mails
            assert told.subject == (
                "[Laggard site] oss-1/sd1 has been 4.0 times slower than its peers for 4 min (await)"
            )
            assert over.subject.startswith("[Laggard site] oss-1/sd1 keeps up with its peers again")
            assert over.message["References"] == told.message["Message-ID"]
            assert f"{PAGE}/component/luns/oss-1/wwn-1?metric=await" in told.message.get_body().get_content()  # type: ignore[union-attr]
            view.slow("oss-1/wwn-1")  # another episode
            view.alarms_ = {key: replace(one, since=NOW - 100) for key, one in view.alarms_.items()}
            await box.until(mails=3)
            assert box.mails[2].message["Message-ID"] != told.message["Message-ID"]
            assert at_work.routes[0].worker.counts["sent"] >= 2

    asyncio.run(story())


def test_a_shadows_stragglers_are_not_mailed() -> None:
    async def story() -> None:
        view = site()
        (calm,) = view.judgements_
        names = calm.components
        shadow = judgement("luns", names, [200] * 7, [9.0] * 7, [True] * 7)
        view.judgements_ = (replace(calm, shadow=shadow),)
        async with served(Box()) as box, mailing(view, box):
            await view.polled()
            view.slow("oss-1/wwn-1")
            await box.until(mails=1)
            await view.polled()
            (mail,) = box.mails
            assert "oss-1/sd1" in mail.subject
            assert "oss-2" not in mail.message.get_body().get_content()  # type: ignore[union-attr]

    asyncio.run(story())


def test_what_is_forgotten_before_its_next_window_has_not_recovered() -> None:
    async def story() -> None:
        view = site()
        (calm,) = view.judgements_
        silent = replace(calm.verdicts, judged=np.array([name != "oss-1/wwn-1" for name in calm.components]))
        straggling = np.array([name == "oss-2/wwn-2" for name in calm.components])
        view.judgements_ = (replace(calm, verdicts=silent, straggler=straggling),)
        async with served(Box()) as box, mailing(view, box):
            for at, name in enumerate(("oss-1/wwn-1", "oss-2/wwn-2", "oss-3/wwn-3")):
                view.slow(name)
                await box.until(mails=2 * at + 1)
                view.healthy(name)
                await box.until(mails=2 * at + 2)
            told = ["keeps up" in mail.subject for mail in box.mails[1::2]]
            assert told == [False, False, True]

    asyncio.run(story())


def test_what_was_told_is_not_told_again_by_the_next_process(tmp_path: Path) -> None:
    async def story() -> None:
        view = site()
        async with served(Box()) as box:
            async with mailing(view, box, tmp_path):
                view.slow("oss-1/wwn-1")
                await box.until(mails=1)
                await view.polled()
            async with mailing(view, box, tmp_path):
                await view.polled()
                view.healthy("oss-1/wwn-1")
                await box.until(mails=2)
            async with mailing(view, box, tmp_path):
                await view.polled()
            assert ["keeps up" in mail.subject for mail in box.mails] == [False, True]

    asyncio.run(story())


def test_what_was_written_during_an_outage_is_sent_by_the_next_process(tmp_path: Path) -> None:
    async def story() -> None:
        view = site()
        async with served(Box()) as box:
            pass
        async with mailing(view, box, tmp_path) as at_work:
            view.slow("oss-1/wwn-1")
            await async_wait_until(lambda: at_work.routes[0].worker.counts["retried"] >= 2)
        view.healthy("oss-1/wwn-1")  # nobody looks: the next process finds that it is over
        async with served(Box(), port=box.port) as again, mailing(view, again, tmp_path):
            await again.until(mails=2)
            await view.polled()
            assert ["keeps up" in mail.subject for mail in again.mails] == [False, True]

    asyncio.run(story())


def test_a_reload_without_a_state_directory_tells_nothing_again() -> None:
    async def story() -> None:
        view = site()
        view.slow("oss-1/wwn-1")
        async with served(Box()) as box:
            async with mailing(view, box) as first:
                await box.until(mails=1)
                await view.polled()
            async with mailing(view, box, before=first):
                await view.polled()
            assert len(box.mails) == 1

    asyncio.run(story())


def test_many_at_once_are_one_digest_and_so_is_their_end() -> None:
    async def story() -> None:
        view = site()
        names = [f"oss-{n}/wwn-{n}" for n in range(1, 6)]
        view.slow(*names[:4], severity=2.0)
        view.slow(names[4], severity=9.0)
        async with served(Box()) as box, mailing(view, box):
            await box.until(mails=1)
            assert box.mails[0].subject == ("[Laggard site] 5 components are slow, oss-5/sd5 the most (9.0×)")
            await view.polled()
            view.healthy(*names)
            await box.until(mails=2)
            assert box.mails[1].subject.startswith("[Laggard site] 5 components are no longer slow")
            await view.polled()
            assert len(box.mails) == 2

    asyncio.run(story())


def test_causes_are_located_in_a_thread_and_once_for_a_digest() -> None:
    """At a large site this takes long, and the event loop receives samples."""

    async def story() -> None:
        view, threads = site(), list[str]()
        locating = view.locating

        def noting() -> Callable[[], Mapping[Key, Location]]:
            locate = locating()

            def noted() -> Mapping[Key, Location]:
                threads.append(threading.current_thread().name)
                return locate()

            return noted

        view.locating = noting  # type: ignore[method-assign]
        async with served(Box()) as box, mailing(view, box):
            await view.polled()
            view.slow(*(f"oss-{n}/wwn-{n}" for n in range(1, 6)))
            await box.until(mails=1)
        assert len(threads) == 1
        assert threads[0] != threading.main_thread().name

    asyncio.run(story())


def test_up_to_three_get_a_mail_each() -> None:
    async def story() -> None:
        view = site()
        view.slow("oss-1/wwn-1", "oss-2/wwn-2", "oss-3/wwn-3")
        async with served(Box()) as box, mailing(view, box):
            await box.until(mails=3)
            assert [mail.subject.split()[2] for mail in box.mails] == ["oss-1/sd1", "oss-2/sd2", "oss-3/sd3"]

    asyncio.run(story())


def test_over_the_hours_limit_the_rest_waits_for_one_digest() -> None:
    async def story() -> None:
        view = site()
        async with served(Box()) as box, mailing(view, box, most_per_hour=2):
            view.slow("oss-1/wwn-1")
            await box.until(mails=1)
            view.slow("oss-2/wwn-2", "oss-3/wwn-3")  # room for one
            await box.until(mails=2)
            assert "2 components are slow," in box.mails[1].subject
            view.slow("oss-4/wwn-4")
            await view.polled()
            view.slow("oss-5/wwn-5")
            await view.polled()
            assert len(box.mails) == 2
            view.now += 3601
            await box.until(mails=3)
            assert "2 components are slow," in box.mails[2].subject

    asyncio.run(story())


def test_what_falls_due_together_is_gathered() -> None:
    async def story() -> None:
        view = site()
        async with served(Box()) as box, mailing(view, box, gather_seconds=0.5, digest_over=1):
            view.slow("oss-1/wwn-1")
            await view.polled()
            assert box.mails == []
            view.slow("oss-2/wwn-2")
            await box.until(mails=1)
            assert "2 components" in box.mails[0].subject

    asyncio.run(story())


def test_a_silenced_component_is_told_of_when_that_is_over() -> None:
    async def story() -> None:
        view = site()
        view.decisions_ = (Decision("silence", "oss-1/sd1", "root", NOW),)
        view.slow("oss-1/wwn-1")
        async with served(Box()) as box, mailing(view, box):
            await view.polled()
            assert box.mails == []
            view.decisions_ = ()
            await box.until(mails=1)
            await view.polled()
            view.decisions_ = (Decision("drain", "oss-1", "root", NOW),)
            view.healthy("oss-1/wwn-1")
            await view.polled()
            await box.until(mails=2)
            assert "keeps up with its peers again" in box.mails[1].subject, "somebody's pager has it open"
            view.decisions_ = ()
            await view.polled()
            assert len(box.mails) == 2

    asyncio.run(story())


def test_in_the_sites_first_day_nothing_is_mailed(tmp_path: Path) -> None:
    async def story() -> None:
        view = site()
        view.slow("oss-1/wwn-1")
        async with served(Box()) as box:
            async with mailing(view, box, tmp_path, learning_seconds=86_400.0):
                await view.polled()
            view.now += 86_000
            async with mailing(view, box, tmp_path, learning_seconds=86_400.0):
                await view.polled()
                assert box.mails == []
                view.now += 1000
                await box.until(mails=1)

    asyncio.run(story())


def test_one_that_is_not_compared_any_more_has_not_recovered() -> None:
    async def story() -> None:
        view = site()
        async with served(Box()) as box, mailing(view, box):
            view.slow("oss-9/gone")
            await box.until(mails=1)
            view.healthy("oss-9/gone")
            await box.until(mails=2)
            assert "oss-9/gone is no longer compared" in box.mails[1].subject

    asyncio.run(story())


def test_without_resolved_mails_an_end_is_only_noted() -> None:
    async def story() -> None:
        view = site()
        async with served(Box()) as box, mailing(view, box, resolved=False):
            view.slow("oss-1/wwn-1")
            await box.until(mails=1)
            view.healthy("oss-1/wwn-1")
            await view.polled()
            view.slow("oss-1/wwn-1")
            view.alarms_ = {key: replace(one, since=NOW - 90) for key, one in view.alarms_.items()}
            await box.until(mails=2)
            assert "slower" in box.mails[1].subject

    asyncio.run(story())


def test_the_plot_shows_what_the_history_has() -> None:
    async def story() -> None:
        view = site()
        for n in range(5):
            calm = view.judgements_[0]
            view.history.judged([replace(calm, start=NOW - 500 + 60 * n, end=NOW - 400 + 60 * n)])
        view.slow("oss-1/wwn-1")
        async with served(Box()) as box, mailing(view, box):
            await box.until(mails=1)
            (picture,) = (p for p in box.mails[0].message.walk() if p.get_content_type() == "image/png")
            assert picture.get_payload(decode=True).startswith(b"\x89PNG")  # type: ignore[union-attr]

    asyncio.run(story())


def test_a_ledger_that_cannot_be_written_delays_and_does_not_end_anything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        view = site()
        view.slow("oss-1/wwn-1")
        (tmp_path / NAME).mkdir()
        async with served(Box()) as box, mailing(view, box, tmp_path):
            await async_wait_until(lambda: caplog.messages)
            assert "notifications wait: " in caplog.messages[0]
            (tmp_path / NAME).rmdir()
            await box.until(mails=1)

    asyncio.run(story())


def test_an_error_that_nobody_thought_of_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        view = site()
        async with served(Box()) as box, mailing(view, box):
            await view.polled()
            with monkeypatch.context() as patch:
                patch.setattr(dispatcher, "report", None)
                view.slow("oss-1/wwn-1")
                await async_wait_until(lambda: caplog.records)
            await box.until(mails=1)

    asyncio.run(story())
    assert "a program error" in caplog.messages[0]


@pytest.mark.parametrize("is_right", [True, False])
def test_no_mail_is_forgotten_by_a_clock_that_may_be_wrong(tmp_path: Path, is_right: bool) -> None:
    """A start with a clock that is 90 days ahead forgot all mails, and sent those about jobs again."""
    view = site()
    outbox = Outbox(tmp_path, NOW)
    outbox.queue("mail", QueuedMessage("j.1", view.now - 8 * 86_400, ("a@example.org",), b"sent"), [])
    outbox.set_outcome("mail", "j.1", "sent")
    outbox.close()

    async def story() -> None:
        async with (
            served(Box()) as box,
            dispatching(view, MailChannel(settings(box.port)), state=tmp_path, is_right=lambda: is_right),
        ):
            await view.polled()
            with closing(sqlite3.connect(tmp_path / NAME)) as db:
                if is_right:
                    await async_wait_until(lambda: not db.execute("SELECT id FROM messages").fetchall())
                else:
                    assert db.execute("SELECT id FROM messages").fetchall() == [("j.1",)]

    asyncio.run(story())
