"""`laggard-aggregator --test-mail` as an operator runs it."""

import re
from collections import deque
from pathlib import Path

import pytest

from laggard_aggregator.cli.daemon import main
from tests.support.http_receiver import Receiver, answer
from tests.support.loop_thread import beside
from tests.support.ports import free_port, is_listening
from tests.support.smtp import mail_server
from tests.support.wait import wait_until

HTTP = """
[http]
external_url = "https://laggard.example.org/"
"""


def run(
    tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str], more: str = "", http: str = ""
) -> tuple[int, str, str]:
    config = tmp_path / "aggregator.toml"
    config.write_text(f"""
        site = "lab"
        {http or HTTP}
        [mail]
        server = "127.0.0.1"
        port = {port}
        sender = "laggard@example.org"
        recipients = ["ops@example.org", "Second <b@example.org>"]
        {more}
    """)
    code = main(["--config", str(config), "--test-mail"])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_it_sends_one_mail_that_says_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    with mail_server(port) as server:
        assert run(tmp_path, port, capsys) == (
            0,
            f"sent to ops@example.org, b@example.org through 127.0.0.1:{port}\n",
            "",
        )
    (arrived,) = server.mails
    mail = arrived.message
    assert mail["Subject"].startswith("[Laggard lab] TEST, nothing is wrong: ")
    assert mail["X-Laggard-Kind"] == "test"
    assert [part.get_content_type() for part in mail.walk()][-1] == "image/png"
    for kind in ("plain", "html"):
        body = mail.get_body((kind,))
        assert body is not None
        assert "this is a test" in body.get_content().lower()
        assert "https://laggard.example.org/" in body.get_content()


@pytest.mark.parametrize("protected", [False, True])
def test_the_command_in_it_has_a_token_where_the_page_asks_for_one(
    protected: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = tmp_path / "credentials"
    names.write_text("ops:scrypt:16384:8:1:" + 32 * "0" + ":" + 64 * "0" + "\n")
    names.chmod(0o600)
    more = f'[http]\nexternal_url = "https://laggard.example.org/"\ncredentials_file = "{names}"'
    port = free_port()
    with mail_server(port) as server:
        assert run(tmp_path, port, capsys, http=more if protected else "")[0] == 0
    body = server.mails[0].message.get_body(("plain",))
    assert body is not None
    token = ["--token-file", "~/.laggard-token"] if protected else []
    (command,) = re.findall(r"laggard top .*", body.get_content().replace("\r", ""))
    assert command.split() == ["laggard", "top", "--url", "https://laggard.example.org", *token]


@pytest.mark.parametrize(
    ("more", "reason"),
    [("", "Connection refused"), ('tls = "starttls"', "Connection refused")],
)
def test_a_server_that_is_not_there_is_one_line(
    more: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    assert run(tmp_path, port, capsys, more) == (1, "", f"laggard-aggregator: 127.0.0.1:{port}: {reason}\n")


def test_a_server_without_tls_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    with mail_server(port) as server:
        for tls in ("starttls", "implicit"):
            code, out, err = run(tmp_path, port, capsys, f'tls = "{tls}"')
            assert (code, out, err.count("\n")) == (1, "", 1)
            assert err.startswith(f"laggard-aggregator: 127.0.0.1:{port}: ")
    assert server.mails == []


def test_there_must_be_somebody_to_mail_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "aggregator.toml"
    config.write_text("")
    assert main(["--config", str(config), "--test-mail"]) == 2
    assert capsys.readouterr().err == (
        f"laggard-aggregator: {config}: mail: missing, there is nobody to send a mail to\n"
    )
    assert main(["--config", str(config), "--test-mail", "--check-config"]) == 2


def test_a_webhook_is_tried_the_same_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    receiver = Receiver(answers=deque([answer(204), answer(403)]), port=port)
    config = tmp_path / "aggregator.toml"
    config.write_text(f'site = "lab"\n[webhook]\nurl = "http://127.0.0.1:{port}/secret"\n')
    asked = ["--config", str(config), "--test-webhook"]

    with beside(receiver.run):
        wait_until(lambda: is_listening(port))
        assert (main(asked), capsys.readouterr().out) == (
            0,
            f"sent to webhook through http://127.0.0.1:{port}\n",
        )
        assert main(asked) == 1
    refused = f"http://127.0.0.1:{port} does not take the message for webhook: HTTP 403 Forbidden"
    assert capsys.readouterr().err == f"laggard-aggregator: {refused}\n"
    (request, _) = receiver.requests
    assert (request.json["kind"], request.json["site"]) == ("test", "lab")
    assert request.json["subject"].startswith("TEST, nothing is wrong: ")
    assert main(asked) == 1
    assert capsys.readouterr().err == f"laggard-aggregator: http://127.0.0.1:{port}: Connection refused\n"
