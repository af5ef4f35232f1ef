"""Mails to the owners of slow jobs: one a job, escaped, on a real server."""

import asyncio
import email
import random
from email import policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from laggard_aggregator.cli.daemon import main
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.verdict.findings_pass import FindingsPass
from laggard_aggregator.jobs.verdict.judge import RunReport
from laggard_aggregator.notify.dispatcher import Dispatcher
from laggard_aggregator.notify.email.channel import MailChannel
from laggard_aggregator.notify.email.owner_mails import LATEST_SECONDS, MOST_WAITING, OwnerMails
from laggard_aggregator.notify.outbox import Outbox
from laggard_common.clock import SystemClock
from tests.aggregator.jobs.test_findings_pass import NOW_NS, SECOND, flooded, joined
from tests.support.builders.job_tables import EPOCH, job_row
from tests.support.clock import FakeClock
from tests.support.dispatching import PAGE, site
from tests.support.ports import free_port
from tests.support.smtp import Box, served, settings
from tests.support.wait import async_wait_until

PATTERN = "{user}@example.org"
HOSTILE = "<script>x</script>\r\nBcc: all@example.org"


def slow(sentence: str = "Writing took 3.2 times the median; OST1 was a straggler") -> RunReport:
    return RunReport("slow", sentence, 3.1)


def mails_of(now: float, pattern: str = PATTERN, port: int = 25) -> OwnerMails:
    return OwnerMails(pattern, settings(port), "site", PAGE, FakeClock(round(now * 1e9)))


def test_a_slow_job_is_mailed_to_its_owner_once(tmp_path: Path) -> None:
    jobs = flooded(tmp_path)
    now_ns = round(jobs[-1]["end"] + 1000) * SECOND

    async def story() -> None:
        async with served(Box()) as box:
            mails = mails_of(now_ns / 1e9, port=box.port)
            made = Dispatcher(
                [MailChannel(settings(box.port))], "site", PAGE, None,
                clock=SystemClock(), rng=random.Random(1), further={"mail": mails.waiting},
            )  # fmt: skip
            task = asyncio.create_task(made.run(site()))
            try:
                work = FindingsPass(tmp_path, "s", JobIndex(tmp_path), mails.judged)
                assert await asyncio.to_thread(work.run, NOW_NS) == len(jobs)
                await box.until(mails=1)
                joined(tmp_path, jobs[-1], NOW_NS + SECOND)
                assert await asyncio.to_thread(work.run, NOW_NS + 2 * SECOND) == 1
                await async_wait_until(lambda: not mails.waiting)
                mails.judged(job_row(99, user="bob", end=now_ns / 1e9), slow())
                await box.until(mails=2)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            first, second = box.mails
            assert (first.recipients, second.recipients) == (("alice@example.org",), ("bob@example.org",))
            assert first.subject == "[Laggard site] Your job 12 (app) was slow"
            for kind in ("plain", "html"):
                body = first.message.get_body((kind,))
                assert body is not None
                shown = " ".join(body.get_content().split())
                assert "a job with 4,900 metadata operations a second ran on scratch-MDT0000" in shown
                assert f"{PAGE}/jobs/c%2F12%2F" in shown
                assert not any(each in shown for each in ("77700777", "otto", "secret"))

    asyncio.run(story())


def test_a_mail_that_waits_at_a_stop_is_in_the_outbox(tmp_path: Path) -> None:
    now = EPOCH + 4000
    mails = mails_of(now)

    async def story() -> None:
        made = Dispatcher(
            [MailChannel(settings(free_port()))], "site", PAGE, tmp_path,
            clock=SystemClock(), rng=random.Random(1), further={"mail": mails.waiting},
        )  # fmt: skip
        task = asyncio.create_task(made.run(site()))
        mails.judged(job_row(99, user="bob", end=now - 10), slow())
        await async_wait_until(lambda: not mails.waiting)
        mails.judged(job_row(98, user="eve", end=now - 10), slow())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(story())
    outbox = Outbox(tmp_path, now)
    waiting = {recipient for each in outbox.waiting("mail") for recipient in each.recipients}
    outbox.close()
    assert waiting == {"bob@example.org", "eve@example.org"}


def test_a_long_verdict_is_whole() -> None:
    sentence = "Writing took 3.2 times the median; " + "a/long/name " * 40 + "carried 25 % of its bytes"
    mails = mails_of(EPOCH + 10_000)
    mails.judged(job_row(1), slow(sentence))
    (waiting,) = mails.waiting
    message = email.message_from_bytes(waiting.message, policy=policy.default)
    assert isinstance(message, EmailMessage)
    for kind in ("plain", "html"):
        body = message.get_body((kind,))
        assert body is not None
        assert sentence in " ".join(body.get_content().split())


def test_names_are_escaped_and_start_no_header() -> None:
    mails = mails_of(EPOCH + 10_000)
    job = job_row(1, application=HOSTILE, name=HOSTILE, job="1\r\nX-Evil: 1")
    mails.judged(job, slow(f"OST <b>1</b> was a straggler of {HOSTILE}"))
    (message,) = mails.waiting
    assert message.recipients == ("alice@example.org",)
    text = message.message.decode()
    head = text.partition("\r\n\r\n")[0]
    assert not any(line.startswith(("Bcc", "X-Evil")) for line in head.splitlines())
    html = text.partition("text/html")[2]
    assert "<script>" not in html
    assert "<b>" not in html


@pytest.mark.parametrize(
    ("changes", "report"),
    [
        ({}, RunReport("as usual", "As usual, by 12 earlier runs")),
        ({}, slow("Writing took 3.2 times the median; no cause is known")),
        ({"user": ""}, slow()),
        ({"user": "a@evil.example"}, slow()),
        ({"user": "a\r\nBcc: b"}, slow()),
        ({"user": "-f"}, slow()),
        ({"user": "x" * 100}, slow()),
        ({"user": "a..b"}, slow()),
        ({"end": None}, slow()),
        ({"end": EPOCH + 10_000 - LATEST_SECONDS}, slow()),
    ],
)
def test_no_mail(changes: dict[str, Any], report: RunReport) -> None:
    mails = mails_of(EPOCH + 10_000)
    mails.judged(job_row(1, **changes), report)
    assert not mails.waiting


def test_mails_that_wait_are_bounded() -> None:
    mails = mails_of(EPOCH + 10_000)
    for number in range(MOST_WAITING + 5):
        mails.judged(job_row(number), slow())
    assert len(mails.waiting) == MOST_WAITING


MAIL = '[mail]\nserver = "localhost"\nsender = "l@example.org"\nrecipients = ["ops@example.org"]\n'


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('[archive]\n[jobs]\nowner_mail = "{user}@example.org"\n' + MAIL, ""),
        (
            '[archive]\n[jobs]\nowner_mail = "{user}@example.org"\n',
            "owner_mail: needs [archive], [mail]",
        ),
        ('[jobs]\nowner_mail = "{user}@example.org"\n' + MAIL, "owner_mail: needs [archive], [mail]"),
        (
            '[archive]\n[jobs]\nowner_mail = "ops@example.org"\n' + MAIL,
            "owner_mail: expected an address",
        ),
        ('[archive]\n[jobs]\nowner_mail = "{user}@a b"\n' + MAIL, "owner_mail: expected an address"),
    ],
)
def test_the_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, wrong: str) -> None:
    path = tmp_path / "aggregator.toml"
    path.write_text(text.replace("[archive]", f'[archive]\ndirectory = "{tmp_path}"'))
    assert main(["--config", str(path), "--check-config"]) == (2 if wrong else 0)
    assert wrong in capsys.readouterr().err
