"""The test mail as a browser shows it: `python -m bench.pictures.mail docs/pictures/mail.png`, with chromium.

The mail goes through a real SMTP server on loopback; what arrives there is shown.
"""

import argparse
import asyncio
import base64
import email
import sys
import time
from email import policy
from email.message import EmailMessage
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session
from playwright.sync_api import sync_playwright

from laggard_aggregator.mail.settings import Access, MailSettings
from laggard_aggregator.mail.trial import send_trial

WIDTH = 720


class _Box:
    """Keeps what arrives."""

    def __init__(self) -> None:
        self.mails: list[bytes] = []

    async def handle_DATA(  # noqa: N802 - so aiosmtpd calls it
        self, _server: SMTP, _session: Session, envelope: Envelope
    ) -> str:
        assert isinstance(envelope.original_content, bytes)
        self.mails.append(envelope.original_content)
        return "250 OK"


def main(argv: list[str] | None = None) -> int:
    """Sends the test mail, and takes a picture of its HTML with the plot in its place."""
    parser = argparse.ArgumentParser(prog="python -m bench.pictures.mail", description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--browser", default="/usr/bin/chromium")
    args = parser.parse_args(argv)
    photograph(html_of(asyncio.run(arrived())), args.output, args.browser)
    return 0


async def arrived() -> EmailMessage:
    """The test mail, as a server got it."""
    box = _Box()
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(box), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        settings = MailSettings("127.0.0.1", "laggard@example.org", ("storage@example.org",), port=port)
        await send_trial(settings, Access(), "site", "https://laggard.example.org", time.time())
    message = email.message_from_bytes(box.mails[0], policy=policy.default)
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


def photograph(html: str, output: Path, browser: str) -> None:
    """The whole page as a PNG."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": WIDTH, "height": 200})
        page.set_content(html)
        page.screenshot(path=output, full_page=True)
        chromium.close()


if __name__ == "__main__":
    sys.exit(main())
