"""Incidents and a real HTTP server that refuses, is slow, redirects, or is away."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from laggard_aggregator.notify import worker
from laggard_aggregator.notify.channel import UnavailableError
from laggard_aggregator.notify.dispatcher import Dispatcher
from laggard_aggregator.notify.email.channel import MailChannel
from laggard_aggregator.notify.webhook.channel import WebhookChannel
from laggard_aggregator.notify.webhook.settings import WebhookSettings
from tests.support.dispatching import PAGE, Site, dispatching, site
from tests.support.http_receiver import Receiver, answer, receiving
from tests.support.pki import of_server
from tests.support.ports import free_port
from tests.support.smtp import Box, served, settings
from tests.support.wait import LIMIT_SECONDS, async_wait_until

SECRET = "T0000-B0000-XXXX"


def channel(port: int, **others: object) -> WebhookChannel:
    values: dict[str, object] = {
        "url": f"http://127.0.0.1:{port}/hooks/{SECRET}?token={SECRET}",
        "after_seconds": 0.0,
        "learning_seconds": 0.0,
        "gather_seconds": 0.0,
    }
    return WebhookChannel(WebhookSettings(**{**values, **others}))  # type: ignore[arg-type]


@asynccontextmanager
async def posting(
    view: Site, receiver: Receiver, state: Path | None = None, **others: object
) -> AsyncIterator[Dispatcher]:
    async with dispatching(view, channel(receiver.port, **others), state=state) as made:
        yield made


def results(dispatcher: Dispatcher) -> dict[str, int]:
    return {result: n for result, n in dispatcher.channels()["webhook"].results.items() if n}


async def counted(dispatcher: Dispatcher, **expected: int) -> None:
    """Waits until each result was counted that often."""
    await async_wait_until(
        lambda: all(results(dispatcher).get(result, 0) >= n for result, n in expected.items()), f"{expected}"
    )


def test_an_incident_is_posted_when_raised_and_when_cleared() -> None:
    async def story() -> None:
        view = site()
        async with receiving(Receiver()) as receiver, posting(view, receiver) as dispatcher:
            view.slow("oss-1/wwn-1")
            await receiver.until(1)
            await view.polled()
            view.healthy("oss-1/wwn-1")
            await counted(dispatcher, sent=2)
        raised, cleared = (request.json for request in receiver.requests)
        assert receiver.requests[0].line == f"POST /hooks/{SECRET}?token={SECRET} HTTP/1.1"
        assert receiver.requests[0].headers["content-type"] == "application/json"
        assert receiver.requests[0].headers["host"] == f"127.0.0.1:{receiver.port}"
        (incident,) = raised["incidents"]
        assert (raised["version"], raised["kind"], raised["site"]) == (1, "straggler", "site")
        assert (incident["component"], incident["name"]) == ("oss-1/wwn-1", "oss-1/sd1")
        assert (incident["status"], incident["severity"], incident["peers"]) == ("raised", 4.0, 6)
        since = datetime.fromisoformat(incident["since"])
        around = [f"{since + timedelta(hours=hours):%Y-%m-%dT%H:%MZ}" for hours in (-6, 6)]
        where = f"{PAGE}/component/luns/oss-1/wwn-1?metric=await&from={around[0]}&to={around[1]}"
        assert raised["url"] == incident["url"] == where  # centred on the alarm
        assert f"?from={around[0]}" in cleared["url"]
        assert (cleared["kind"], cleared["resolves"]) == ("resolved", [raised["id"]])
        assert [each["recovered"] for each in cleared["incidents"]] == [True]

    asyncio.run(story())


def test_many_incidents_are_one_digest() -> None:
    async def story() -> None:
        view = site()
        view.slow(*(f"oss-{n}/wwn-{n}" for n in range(1, 6)))
        async with receiving(Receiver()) as receiver, posting(view, receiver) as dispatcher:
            await counted(dispatcher, sent=1)
            await view.polled()
        (digest,) = (request.json for request in receiver.requests)
        assert (digest["kind"], digest["count"], len(digest["incidents"])) == ("digest", 5, 5)

    asyncio.run(story())


@pytest.mark.parametrize("status", [500, 502, 408, 425, 429, 503])
def test_a_refusal_for_now_is_retried_with_the_same_message(status: int) -> None:
    async def story() -> None:
        view = site()
        view.slow("oss-1/wwn-1")
        receiver = Receiver(answers=deque([answer(status), answer(status)]))
        async with receiving(receiver), posting(view, receiver) as dispatcher:
            await counted(dispatcher, retried=2, sent=1)
        assert len({request.body for request in receiver.requests}) == 1

    asyncio.run(story())


@pytest.mark.parametrize("status", [400, 401, 404, 410, 301, 302, 307, 308])
def test_another_status_is_a_refusal_for_good(status: int, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        view = site()
        view.slow("oss-1/wwn-1")
        async with receiving(Receiver()) as elsewhere:
            location = f"Location: http://127.0.0.1:{elsewhere.port}/\r\n"
            receiver = Receiver(answers=deque([answer(status, location)]))
            async with receiving(receiver), posting(view, receiver) as dispatcher:
                await counted(dispatcher, refused=1)
                await view.polled()
                assert dispatcher.channels()["webhook"].waiting == 0
            assert (len(receiver.requests), elsewhere.requests) == (1, [])

    asyncio.run(story())
    (warning,) = (each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING)
    assert f"refused for webhook: HTTP {status} " in warning
    assert ("redirects are not followed" in warning) == (status < 400)


def test_a_message_is_given_up_after_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "GIVE_UP_SECONDS", 0.0)
    monkeypatch.setattr(worker, "MIN_TRYING_SECONDS", 0.05)

    async def story() -> None:
        view = site()
        view.slow("oss-1/wwn-1")
        receiver = Receiver(answers=deque([answer(500)] * 1000))
        async with receiving(receiver), posting(view, receiver) as dispatcher:
            await counted(dispatcher, expired=1)
            assert dispatcher.channels()["webhook"].waiting == 0

    asyncio.run(story())


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ("Retry-After: 120\r\n", 120.0),
        ("Retry-After: 999999\r\n", 999_999.0),
        (
            "Date: Sun, 22 Nov 2026 07:00:00 GMT\r\nRetry-After: Sun, 22 Nov 2026 07:02:00 GMT\r\n",
            120.0,
        ),
        ("Date: Sun, 22 Nov 2026 07:00:00 GMT\r\nRetry-After: Sat, 21 Nov 2026 07:02:00 GMT\r\n", 0.0),
        ("Retry-After: -5\r\n", 0.0),
        ("Retry-After: \u0661\r\n", 0.0),
        ("Retry-After: soon\r\n", 0.0),
        ("", 0.0),
    ],
)
def test_retry_after_is_read(headers: str, seconds: float) -> None:
    async def story() -> None:
        receiver = Receiver(answers=deque([answer(500, headers), answer(503, headers)]))
        async with receiving(receiver):
            made = channel(receiver.port)
            assert (await made.send(b"{}", ("webhook",))).retry_after_seconds == seconds
            with pytest.raises(UnavailableError, match="HTTP 503 Service Unavailable") as caught:
                await made.send(b"{}", ("webhook",))
            assert caught.value.retry_after_seconds == seconds

    asyncio.run(story())


@pytest.mark.parametrize("status", [500, 503])
def test_retry_after_is_waited_for_within_bounds(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "MAX_RETRY_AFTER_SECONDS", 0.5)

    async def story() -> None:
        view = site()
        view.slow("oss-1/wwn-1")
        receiver = Receiver(answers=deque([answer(status, "Retry-After: 86400\r\n")]))
        async with receiving(receiver), posting(view, receiver) as dispatcher:
            at = time.monotonic()
            await receiver.until(1)
            await counted(dispatcher, sent=1)
            assert time.monotonic() - at > 0.4

    asyncio.run(story())


def test_an_outage_delays_and_neither_loses_nor_repeats(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        view, receiver = site(), Receiver(port=free_port())
        view.slow("oss-1/wwn-1", "oss-2/wwn-2")
        async with posting(view, receiver) as dispatcher:
            await async_wait_until(lambda: results(dispatcher).get("retried", 0) >= 3)
            assert dispatcher.channels()["webhook"].waiting == 2
            async with receiving(receiver, port=receiver.port):
                await counted(dispatcher, sent=2)
        said = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
        assert said == [f"webhook: messages wait for http://127.0.0.1:{receiver.port}: Connection refused"]

    asyncio.run(story())


def test_a_restart_sends_what_waits_and_repeats_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        view, receiver = site(), Receiver(port=free_port())
        view.slow("oss-1/wwn-1")
        async with posting(view, receiver, tmp_path) as dispatcher:
            await counted(dispatcher, retried=1)
        async with receiving(receiver, port=receiver.port):
            async with posting(view, receiver, tmp_path) as dispatcher:
                await counted(dispatcher, sent=1)
            async with posting(view, receiver, tmp_path) as dispatcher:
                await view.polled()
                view.healthy("oss-1/wwn-1")
                await counted(dispatcher, sent=1)
        assert [request.json["kind"] for request in receiver.requests] == ["straggler", "resolved"]

    asyncio.run(story())


def test_mail_and_webhook_each_report_an_incident_once(tmp_path: Path) -> None:
    """The mail server is away: the webhook does not wait for it, and mail is sent by the next process."""

    async def story() -> None:
        view = site()
        view.slow("oss-1/wwn-1")
        box = Box(port=free_port())
        async with receiving(Receiver()) as receiver:
            channels = (MailChannel(settings(box.port)), channel(receiver.port))
            async with dispatching(view, *channels, state=tmp_path) as dispatcher:
                await counted(dispatcher, sent=1)
                await async_wait_until(lambda: dispatcher.channels()["mail"].results["retried"] > 0)
            channels = (MailChannel(settings(box.port)), channel(receiver.port))
            async with served(box, port=box.port), dispatching(view, *channels, state=tmp_path):
                await box.until(mails=1)
                await view.polled()
            assert (len(box.mails), len(receiver.requests)) == (1, 1)

    asyncio.run(story())


@pytest.mark.parametrize(
    "garbage",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 99999999 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"a" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 200 + b"\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\nX",
    ],
)
def test_an_answer_that_is_not_http_is_retried(garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        view = site()
        view.slow("oss-1/wwn-1")
        receiver = Receiver(answers=deque([garbage]))
        async with receiving(receiver), posting(view, receiver) as dispatcher:
            await counted(dispatcher, retried=1, sent=1)

    asyncio.run(story())
    assert any("not HTTP/1.1" in each or "without an answer" in each for each in caplog.messages)


def test_a_huge_body_is_not_read() -> None:
    async def story() -> None:
        endless = answer(200) + b"x" * 50_000_000
        receiver = Receiver(answers=deque([b"HTTP/1.1 103 Early Hints\r\n\r\n" + endless]))
        async with receiving(receiver):
            made = channel(receiver.port, timeout_seconds=LIMIT_SECONDS)
            assert (await made.send(b"{}", ("webhook",))).refused == {}

    asyncio.run(story())


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nX-Slow: "])
def test_a_server_that_never_answers_is_left_in_time(sent: bytes) -> None:
    async def story() -> None:
        receiver = Receiver(answers=deque([sent]), hang=True)
        async with receiving(receiver):
            with pytest.raises(UnavailableError, match=r"^no answer within 0\.2 s$"):
                await channel(receiver.port, timeout_seconds=0.2).send(b"{}", ("webhook",))

    asyncio.run(story())


def secret_file(tmp_path: Path, name: str, content: str) -> Path:
    path = tmp_path / name
    path.write_text(content)
    path.chmod(0o600)
    return path


def test_secrets_reach_the_server_and_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def story() -> None:
        view = site()
        view.slow("oss-1/wwn-1")
        echo = answer(404, body=f"Cannot POST /hooks/{SECRET}".encode())
        receiver = Receiver(answers=deque([answer(503), answer(500), echo]), port=free_port())
        secrets = {
            "url": "",
            "url_file": secret_file(tmp_path, "url", f"http://127.0.0.1:{receiver.port}/hooks/{SECRET}\n"),
            "bearer_token_file": secret_file(tmp_path, "token", "hunter2-token\n"),
            "headers_file": secret_file(tmp_path, "headers", "X-Api-Key: hunter2-key\nX-Tenant:  hpc\n"),
        }
        made = channel(receiver.port, **secrets)
        async with dispatching(view, made, state=tmp_path) as dispatcher:
            await counted(dispatcher, retried=1)  # nobody listens
            async with receiving(receiver, port=receiver.port):
                await counted(dispatcher, refused=1)
        last = receiver.requests[-1]
        assert last.line == f"POST /hooks/{SECRET} HTTP/1.1"
        assert last.headers["authorization"] == "Bearer hunter2-token"
        assert (last.headers["x-api-key"], last.headers["x-tenant"]) == ("hunter2-key", "hpc")
        assert made.destination == f"http://127.0.0.1:{receiver.port}"
        kept = (tmp_path / "mail.db").read_bytes()
        for text in (caplog.text, repr(made.settings), repr(made._endpoint), kept.decode("latin-1")):
            assert SECRET not in text
            assert "hunter2" not in text

    asyncio.run(story())


def test_tls_is_verified(certificates: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with receiving(Receiver(), tls=of_server(certificates)) as receiver:
            url = f"https://127.0.0.1:{receiver.port}/x"
            trusting = channel(0, url=url, ca_file=certificates / "ca.pem")
            assert (await trusting.send(b"{}", ("webhook",))).refused == {}
            with pytest.raises(UnavailableError, match="its certificate is not trusted: unable to get local"):
                await channel(0, url=url).send(b"{}", ("webhook",))
            named = f"https://localhost:{receiver.port}/x"
            with pytest.raises(UnavailableError, match="its certificate is not trusted: Hostname mismatch"):
                await channel(0, url=named, ca_file=certificates / "ca.pem").send(b"{}", ("webhook",))
            assert len(receiver.requests) == 1

    asyncio.run(story())
