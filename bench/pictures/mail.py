"""Mails as a browser shows them: `python -m bench.pictures.mail docs/pictures` (needs chromium).

The stragglers of the made-up site of `bench.pictures.page` are told of through a real SMTP server on
loopback; what arrives there is shown: the mail about the worst of them, and a digest of all.
"""

import asyncio
import base64
import email
import random
import sys
from email import policy
from email.message import EmailMessage
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session

from bench.page.browser import chromium
from bench.pictures.page import site
from bench.pictures.shrink import command, shrink
from laggard_aggregator.notify.dispatcher import Dispatcher
from laggard_aggregator.notify.email.channel import MailChannel, MailSettings
from laggard_aggregator.status.view import Status
from laggard_common.clock import SystemClock

WIDTH = 720
PAGE = "https://laggard.example.org"
PATIENCE_SECONDS = 120.0


class _Box:
    """Keeps what arrives."""

    def __init__(self) -> None:
        self.mails: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle_DATA(  # noqa: N802 - so aiosmtpd calls it
        self, _server: SMTP, _session: Session, envelope: Envelope
    ) -> str:
        assert isinstance(envelope.original_content, bytes)
        self.mails.put_nowait(envelope.original_content)
        return "250 OK"


def main(argv: list[str] | None = None) -> int:
    """Writes the pictures; 1 when one of them is too large."""
    return command("mail", __doc__, take, argv)


async def take(into: Path) -> list[Path]:
    """Takes all pictures; the files."""
    view = site().view
    found = []
    async with chromium() as browser:
        for name, digest_over in (("mail", 100), ("mail-digest", 0)):
            page = await browser.new_page(viewport={"width": WIDTH, "height": 200})
            await page.set_content(html_of(await first_mail(view, digest_over)))
            path = into / f"{name}.png"
            await page.screenshot(path=path, full_page=True)
            shrink(path)
            found.append(path)
            await page.close()
    return found


async def first_mail(view: Status, digest_over: int) -> EmailMessage:
    """The first mail about the view's alarms, the worst, as a server received it."""
    box = _Box()
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(box), "127.0.0.1", 0)
    async with server, asyncio.timeout(PATIENCE_SECONDS):
        settings = MailSettings(
            "127.0.0.1",
            "laggard@example.org",
            ("storage@example.org",),
            port=server.sockets[0].getsockname()[1],
            after_seconds=0.0,
            learning_seconds=0.0,
            gather_seconds=0.0,
            digest_over=digest_over,
        )
        channels = [MailChannel(settings)]
        dispatcher = Dispatcher(channels, view.site, PAGE, None, clock=SystemClock(), rng=random.Random(1))
        running = asyncio.create_task(dispatcher.run(view))
        message = email.message_from_bytes(await box.mails.get(), policy=policy.default)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert isinstance(message, EmailMessage)
    return message


def html_of(message: EmailMessage) -> str:
    """Its HTML, with pictures inside instead of beside it."""
    body = message.get_body(("html",))
    assert body is not None
    html = str(body.get_content())
    for part in message.walk():
        if part.get_content_maintype() == "image":
            data = base64.b64encode(part.get_payload(decode=True)).decode()  # type: ignore[arg-type]
            name = str(part["Content-ID"]).strip("<>")
            html = html.replace(f"cid:{name}", f"data:{part.get_content_type()};base64,{data}")
    return html


if __name__ == "__main__":
    sys.exit(main())
