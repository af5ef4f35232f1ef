import os
from pathlib import Path

import pytest

from laggard_aggregator.cli.daemon import main
from laggard_aggregator.notify.email.channel import MailChannel, MailSettings, bare
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_common.config import parse
from laggard_common.errors import ConfigError

LEAST = {"server": "mail.example.org", "sender": "laggard@example.org", "recipients": ["ops@example.org"]}
EXPECTED_ADDRESS = "expected an address such as laggard@example.org, got"


def made(**others: object) -> MailSettings:
    table = {"mail": {**LEAST, **others}}
    settings = parse(AggregatorSettings, table).channels["mail"]
    assert isinstance(settings, MailSettings)
    return settings


def test_four_days_and_no_encryption_unless_told_otherwise() -> None:
    settings = made()
    assert (settings.severe_severity, settings.severe_after_seconds) == (5.0, 900.0)
    assert (settings.after_seconds, settings.encryption, settings.effective_port) == (345_600.0, "none", 25)


@pytest.mark.parametrize(
    ("tls", "encryption", "port"),
    [
        (False, "none", 25),
        (True, "implicit", 465),
        ("none", "none", 25),
        ("starttls", "starttls", 587),
        ("implicit", "implicit", 465),
    ],
)
def test_the_port_goes_with_the_encryption(tls: bool | str, encryption: str, port: int) -> None:
    assert (made(tls=tls).encryption, made(tls=tls).effective_port) == (encryption, port)
    assert made(tls=tls, port=2525).address == "mail.example.org:2525"


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"sender": "laggard"}, f"mail.sender: {EXPECTED_ADDRESS} 'laggard'"),
        ({"sender": "a@b\r\nBcc: c@d"}, f"mail.sender: {EXPECTED_ADDRESS} 'a@b\\r\\nBcc: c@d'"),
        ({"recipients": []}, "mail.recipients: must not be empty"),
        ({"recipients": ["a@b, c@d"]}, f"mail.recipients: {EXPECTED_ADDRESS} 'a@b, c@d'"),
        ({"server": "mail server"}, "mail.server: expected a host name or an address, got 'mail server'"),
        ({"tls": "ssl"}, "mail.tls: expected none, starttls or implicit, got 'ssl'"),
        ({"tls": 3}, "mail.tls: expected true or false or a string, got 3"),
        ({"username": "u"}, "mail.username: needs a password_file, and that a username"),
        (
            {"password_file": "/p", "tls": True},
            "mail.username: needs a password_file, and that a username",
        ),
        (
            {"username": "u", "password_file": "/p"},
            "mail.tls: a password is only sent encrypted: expected starttls or implicit",
        ),
        ({"ca_file": "/ca.pem"}, "mail.ca_file: is for tls = starttls or implicit"),
        ({"most_per_hour": 0}, "mail.most_per_hour: expected 1-10000, got 0"),
    ],
)
def test_what_is_wrong_is_one_line(wrong: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        made(**wrong)
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("a@b.example", "a@b.example"),
        ("Storage team <ops@b.example>", "ops@b.example"),
        ("a@[192.0.2.1]", "a@[192.0.2.1]"),
    ],
)
def test_addresses_may_have_a_name(address: str, local: str) -> None:
    assert bare(address) == local


@pytest.mark.parametrize(
    "address", ["", "a", "@b", "a@", "a b@c", "<a@b", "X <a@b", "a@b@c", "a@b;c@d", "ä@b", "a@b\0"]
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValueError):
        bare(address)


def check(tmp_path: Path, mail: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    config = tmp_path / "aggregator.toml"
    config.write_text(
        '[mail]\nserver = "127.0.0.1"\nsender = "l@example.org"\nrecipients = ["o@example.org"]\n' + mail
    )
    code = main(["--config", str(config), "--check-config"])
    return code, capsys.readouterr().err.replace(str(tmp_path), "")


def test_check_config_reads_the_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = tmp_path / "password"
    mail = f'username = "u"\npassword_file = "{secret}"\n'
    said = "laggard-aggregator: /aggregator.toml: mail.password_file: /password: "
    assert check(tmp_path, mail, capsys) == (2, f"{said}No such file or directory\n")
    secret.write_text("sesame\n")
    secret.chmod(0o644)
    readable = "may be read or written by everyone, expected mode 0600 or 0640"
    assert check(tmp_path, mail, capsys) == (2, f"{said}{readable}\n")
    secret.chmod(0o600)
    assert check(tmp_path, mail, capsys) == (0, "")
    secret.write_text("\n")
    assert check(tmp_path, mail, capsys) == (2, f"{said}is empty\n")
    secret.write_bytes(b"\xff\xfe")
    assert check(tmp_path, mail, capsys) == (2, f"{said}not UTF-8\n")


def test_check_config_reads_the_authority(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    code, said = check(tmp_path, f'tls = "starttls"\nca_file = "{tmp_path}/ca.pem"\n', capsys)
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("laggard-aggregator: /aggregator.toml: mail.ca_file: /ca.pem: not usable: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_secret_that_we_may_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = tmp_path / "password"
    secret.write_text("sesame")
    secret.chmod(0)
    code, said = check(tmp_path, f'username = "u"\npassword_file = "{secret}"\n', capsys)
    assert (code, "Permission denied" in said) == (2, True)


def test_the_password_is_in_no_representation(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("sesame\n")
    secret.chmod(0o600)
    channel = MailChannel(made(server="localhost", username="u", password_file=str(secret)))
    assert channel._password == "sesame"
    assert "sesame" not in repr(channel)
