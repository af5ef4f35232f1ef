"""Queued mails and a real server that is away, refuses, or goes in the middle."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from laggard_aggregator.notify.email.channel import MailChannel, MailSettings
from laggard_aggregator.notify.outbox import Outbox, QueuedMessage
from laggard_aggregator.notify.worker import GIVE_UP_SECONDS, MIN_TRYING_SECONDS, DeliveryWorker
from laggard_common.clock import SystemClock
from tests.support.builders.batches import SECOND
from tests.support.clock import HandClock
from tests.support.pki import of_server
from tests.support.smtp import Box, served, settings
from tests.support.wait import async_wait_until, time_limit

BODY = b"From: laggard@example.org\r\nSubject: one\r\n\r\n.leading dot\r\n"


class Delivering:
    """A worker with its outbox."""

    def __init__(self, made: MailSettings) -> None:
        self.outbox = Outbox(None, 0.0)
        self.worker = DeliveryWorker(MailChannel(made), SystemClock(), random.Random(1))

    async def queue(
        self, id_: str, *recipients: str, body: bytes = BODY, resolves: tuple[str, ...] = ()
    ) -> None:
        to = recipients or ("ops@example.org",)
        queued = QueuedMessage(id_, SystemClock().wall_ns() / 1e9, to, body, resolves)
        await self.outbox.do(Outbox.queue, "mail", queued)
        self.worker.wake.set()

    async def waiting(self) -> list[str]:
        return [mail.id for mail in await self.outbox.do(Outbox.waiting, "mail")]

    async def sql(self, script: str) -> None:
        await self.outbox.do(lambda outbox: outbox._db.executescript(script))

    async def until(self, result: str, count: int) -> None:
        await async_wait_until(lambda: self.worker.counts[result] >= count)


@asynccontextmanager
async def sending_by(desk: Delivering) -> AsyncIterator[Delivering]:
    task = asyncio.create_task(desk.worker.run(desk.outbox))
    try:
        yield desk
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await desk.outbox.do(Outbox.close)


def test_mails_go_in_order_to_everyone() -> None:
    async def story() -> None:
        async with served(Box()) as box, sending_by(Delivering(settings(box.port))) as desk:
            await desk.queue("a", "x@example.org", "y@example.org")
            await desk.queue("b")
            await desk.until("sent", 2)
            assert [mail.recipients for mail in box.mails] == [
                ("x@example.org", "y@example.org"),
                ("ops@example.org",),
            ]
            assert box.mails[0].raw == BODY
            assert (await desk.waiting(), desk.worker.waiting) == ([], 0)

    asyncio.run(story())


def test_an_outage_delays_and_neither_loses_nor_repeats(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with served(Box()) as box:
            port = box.port
        async with sending_by(Delivering(settings(port))) as desk:
            for id_ in "abc":
                await desk.queue(id_)
            await desk.until("retried", 3)
            assert desk.worker.waiting == 3
            async with served(Box(), port=port) as box:
                await desk.until("sent", 3)
                assert len(box.mails) == 3
        said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert said == [f"mail: messages wait for 127.0.0.1:{port}: Connection refused"]

    asyncio.run(story())


def test_what_is_refused_for_now_waits_alone() -> None:
    async def story() -> None:
        box = Box(replies=deque(["451 later", "250 OK", "452 still later"]))
        async with served(box), sending_by(Delivering(settings(box.port))) as desk:
            await desk.queue("a")
            await desk.queue("b")
            await desk.until("sent", 2)
            assert (len(box.mails), box.tried) == (2, 4)
            assert desk.worker.counts["retried"] == 2

    asyncio.run(story())


def test_what_is_refused_for_good_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        box = Box(replies=deque(["554 \x1b[31mno\r\n"]))
        async with served(box), sending_by(Delivering(settings(box.port))) as desk:
            await desk.queue("a")
            await desk.queue("b")
            await desk.until("sent", 1)
            assert desk.worker.counts["refused"] == 1
            assert (await desk.waiting(), box.tried) == ([], 2)
            warned = [each for each in caplog.messages if "refused" in each]
            assert len(warned) == 1
            assert "ops@example.org" in warned[0]
            assert warned[0].isprintable()

    asyncio.run(story())


def test_only_those_who_do_not_have_it_get_it_again() -> None:
    async def story() -> None:
        box = Box(
            recipients={
                "late@example.org": deque(["450 busy", "450 busy"]),
                "no@example.org": deque(["550 no"]),
            }
        )
        async with served(box), sending_by(Delivering(settings(box.port))) as desk:
            await desk.queue("a", "ops@example.org", "late@example.org", "no@example.org")
            await desk.until("sent", 1)
            assert [mail.recipients for mail in box.mails] == [("ops@example.org",), ("late@example.org",)]
            assert await desk.waiting() == []

    asyncio.run(story())


def test_nobody_hears_that_it_is_over_before_hearing_of_it() -> None:
    over = b"Subject: over\r\n" + BODY

    async def story() -> None:
        box = Box(recipients={"late@example.org": deque(["450 busy", "450 busy"])})
        async with served(box), sending_by(Delivering(settings(box.port))) as desk:
            await desk.queue("s.1", "ops@example.org", "late@example.org")
            await desk.queue("r.1", "ops@example.org", "late@example.org", body=over, resolves=("s.0", "s.1"))
            await desk.until("sent", 2)
            assert [(mail.recipients, mail.raw) for mail in box.mails] == [
                (("ops@example.org",), BODY),
                (("ops@example.org",), over),
                (("late@example.org",), BODY),
                (("late@example.org",), over),
            ]
            assert await desk.waiting() == []

    asyncio.run(story())


def test_what_is_over_is_told_though_the_mail_before_it_is_given_up() -> None:
    over = b"Subject: over\r\n" + BODY

    async def story() -> None:
        box = Box(replies=deque(["451 later", "554 no"]))
        async with served(box), sending_by(Delivering(settings(box.port))) as desk:
            await desk.queue("s.1")
            await desk.queue("r.1", body=over, resolves=("s.0", "s.1"))
            await desk.until("sent", 1)
            assert [mail.raw for mail in box.mails] == [over]
            assert (desk.worker.counts["refused"], box.tried) == (1, 3)

    asyncio.run(story())


def test_a_sender_that_is_refused_keeps_mails_until_the_configuration_is_right() -> None:
    async def story() -> None:
        box = Box(sender="550 relay not permitted")
        async with served(box), sending_by(Delivering(settings(box.port))) as desk:
            await desk.queue("a")
            await desk.until("retried", 2)
            box.sender = ""
            await desk.until("sent", 1)
            assert len(box.mails) == 1

    asyncio.run(story())


@pytest.mark.parametrize(
    "answer",
    [
        "504 5.5.2 <localhost>: Helo command rejected: need fully-qualified hostname",
        "550 5.7.1 <localhost>: Helo command rejected: Host not found",
        "554 5.7.1 <unknown[192.0.2.1]>: Client host rejected: Access denied",
        "554 5.7.1 <ops@example.org>: Relay access denied",
        "530 5.7.0 Must issue a STARTTLS command first",
        "550 5.7.1 Service unavailable; client [192.0.2.1] blocked using a blocklist",
    ],
)
def test_a_refusal_for_the_connections_sake_keeps_mails(
    answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        box = Box(recipients={"ops@example.org": deque([answer, answer])})
        async with served(box), sending_by(Delivering(settings(box.port))) as desk:
            await desk.queue("a")
            await desk.until("sent", 1)
            assert len(box.mails) == 1
            assert desk.worker.counts["refused"] == 0
        assert any("the server refuses mail from this host" in message for message in caplog.messages)

    asyncio.run(story())


def test_one_recipient_who_may_not_be_relayed_to_keeps_no_mail_from_the_others() -> None:
    async def story() -> None:
        box = Box(recipients={"far@example.com": deque(["554 5.7.1 Relay access denied"])})
        async with served(box), sending_by(Delivering(settings(box.port))) as desk:
            await desk.queue("a", "ops@example.org", "far@example.com")
            await desk.until("sent", 1)
            assert box.mails[0].recipients == ("ops@example.org",)
            assert await desk.waiting() == []

    asyncio.run(story())


@pytest.mark.parametrize(
    ("host", "configured", "told"),
    [
        ("mon.example.net", "", "mon.example.net"),
        ("localhost", "", "example.org"),
        ("localhost.localdomain", "", "example.org"),
        ("mon", "", "example.org"),
        ("mon", "mon.site.example", "mon.site.example"),
        ("mon.example.net", "[192.0.2.7]", "[192.0.2.7]"),
    ],
)
def test_the_name_that_the_server_hears(
    host: str, configured: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.getfqdn", lambda: host)

    async def story() -> None:
        async with served(Box()) as box:
            async with sending_by(Delivering(settings(box.port, hello_name=configured))) as desk:
                await desk.queue("a")
                await desk.until("sent", 1)
            assert box.hello_names == [told]

    asyncio.run(story())


def test_a_server_that_goes_before_it_answers_gets_the_same_mail_again() -> None:
    async def story() -> None:
        box = Box(replies=deque(["gone"]))
        async with served(box), sending_by(Delivering(settings(box.port))) as desk:
            await desk.queue("a")
            await desk.until("sent", 1)
            assert [mail.raw for mail in box.mails] == [BODY, BODY]

    asyncio.run(story())


def test_what_cannot_be_noted_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with served(Box()) as box, sending_by(Delivering(settings(box.port))) as desk:
            await desk.sql(
                "CREATE TRIGGER full BEFORE UPDATE ON messages BEGIN SELECT RAISE(ABORT, 'full'); END"
            )
            await desk.queue("a")
            await box.until(mails=1)
            await async_wait_until(lambda: desk.worker._failures >= 3)
            assert await desk.waiting() == ["a"]
            await desk.sql("DROP TRIGGER full")
            async with time_limit():
                while await desk.waiting():
                    await asyncio.sleep(0.005)
            await desk.queue("b")
            await desk.until("sent", 2)
            assert len(box.mails) == 2

    asyncio.run(story())


class SteppedClock(HandClock):
    """The wall clock is ahead by `ahead_ns`."""

    ahead_ns = 0

    def wall_ns(self) -> int:
        return self.ns + self.ahead_ns


def test_after_days_a_mail_is_given_up_but_not_for_a_clock_that_is_set_ahead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        clock, days = SteppedClock(1000 * SECOND), round(GIVE_UP_SECONDS + 1) * SECOND
        outbox = Outbox(None, 0.0)
        worker = DeliveryWorker(MailChannel(settings(1)), clock, random.Random(1))

        async def looked(mails: int) -> None:
            worker.waiting = -1
            worker.wake.set()
            await async_wait_until(lambda: worker.waiting == mails)

        async def given_up(mails: int) -> None:
            worker.wake.set()
            await async_wait_until(lambda: worker.counts["expired"] >= mails)

        outbox.queue("mail", QueuedMessage("a", 1000.0, ("ops@example.org",), BODY))
        task = asyncio.create_task(worker.run(outbox))
        await looked(1)
        clock.ahead_ns = days
        outbox.queue(
            "mail", QueuedMessage("b", 1000.0, ("ops@example.org",), BODY)
        )  # by a clock that was right
        await looked(2)
        clock.ns += round(MIN_TRYING_SECONDS + 1) * SECOND
        await given_up(1)
        assert [mail.id for mail in outbox.waiting("mail")] == ["a"]
        clock.ns += days
        await given_up(2)
        assert outbox.waiting("mail") == []
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        outbox.close()
        given_up_in_order = [f"mail: giving up on {id_} after days without delivery" for id_ in "ba"]
        assert caplog.messages == [
            "mail: messages wait for 127.0.0.1:1: Connection refused",
            *given_up_in_order,
        ]

    asyncio.run(story())


def test_at_the_end_a_mail_under_way_is_brought_to_its_end() -> None:
    async def story() -> None:
        entered, may_go_on = asyncio.Event(), asyncio.Event()

        class Slow(Box):
            async def handle_DATA(self, *given: object) -> str:
                entered.set()
                await may_go_on.wait()
                return await super().handle_DATA(*given)  # type: ignore[arg-type]

        async with served(Slow()) as box:
            desk = Delivering(settings(box.port))
            task = asyncio.create_task(desk.worker.run(desk.outbox))
            await desk.queue("a")
            await desk.queue("b")
            await entered.wait()
            task.cancel()
            may_go_on.set()
            await asyncio.gather(task, return_exceptions=True)
            assert await desk.waiting() == ["b"]
            assert len(box.mails) == 1
            await desk.outbox.do(Outbox.close)

    asyncio.run(story())


def secret(tmp_path: Path, password: str) -> Path:
    path = tmp_path / "password"
    path.write_text(password + "\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
def test_encrypted_and_with_a_password(tls: str, certificates: Path, tmp_path: Path) -> None:
    async def story() -> None:
        context = of_server(certificates)
        box = Box(passwords={"laggard": "open sesame"})
        contexts = {tls: context}
        async with served(box, starttls=contexts.get("starttls"), implicit=contexts.get("implicit")):
            made = settings(
                box.port,
                tls=tls,
                ca_file=certificates / "ca.pem",
                username="laggard",
                password_file=secret(tmp_path, "open sesame"),
            )
            async with sending_by(Delivering(made)) as desk:
                await desk.queue("a")
                await desk.until("sent", 1)
                assert (box.mails[0].encrypted or tls == "implicit", box.mails[0].authenticated) == (
                    True,
                    True,
                )

    asyncio.run(story())


def test_a_wrong_password_keeps_the_mails_and_stands_in_no_log(
    certificates: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def story() -> None:
        box = Box(passwords={"laggard": "right"})
        async with served(box, starttls=of_server(certificates)):
            made = settings(
                box.port,
                tls="starttls",
                ca_file=certificates / "ca.pem",
                username="laggard",
                password_file=secret(tmp_path, "hunter2-wrong"),
            )
            async with sending_by(Delivering(made)) as desk:
                await desk.queue("a")
                await desk.until("retried", 2)
                assert (box.mails, desk.worker.waiting) == ([], 1)

    asyncio.run(story())
    ours = [each for each in caplog.messages if "messages wait" in each]
    assert len(ours) == 1
    assert "laggard was refused: 535 " in ours[0]
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
def test_a_certificate_that_nobody_vouches_for(
    tls: str, certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        contexts = {tls: of_server(certificates)}
        box = Box()
        async with served(box, starttls=contexts.get("starttls"), implicit=contexts.get("implicit")):
            made = settings(box.port, tls=tls)
            async with sending_by(Delivering(made)) as desk:
                await desk.queue("a")
                await desk.until("retried", 1)
                assert box.mails == []

    asyncio.run(story())
    assert any(
        "its certificate is not trusted: unable to get local issuer" in each for each in caplog.messages
    )


def test_no_starttls_where_it_is_asked_for_sends_nothing() -> None:
    async def story() -> None:
        async with served(Box()) as box:
            made = settings(box.port, tls="starttls")
            async with sending_by(Delivering(made)) as desk:
                await desk.queue("a")
                await desk.until("retried", 1)
                assert box.mails == []

    asyncio.run(story())
