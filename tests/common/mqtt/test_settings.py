import shutil
from pathlib import Path

import pytest

from laggard_common.config import parse
from laggard_common.errors import ConfigError
from laggard_common.mqtt.settings import MqttSettings, client_arguments
from tests.support.processes import run_command


def secret(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_plain() -> None:
    assert client_arguments(MqttSettings()) == {
        "hostname": "127.0.0.1",
        "port": 1883,
        "username": None,
        "password": None,
        "tls_context": None,
    }


def test_password_is_read_from_its_file(tmp_path: Path) -> None:
    path = secret(tmp_path / "password", " with space \r\n")
    arguments = client_arguments(MqttSettings(username="oss-1", password_file=path))
    assert arguments["username"] == "oss-1"
    assert arguments["password"] == " with space "


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o777])
def test_a_secret_that_everyone_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = secret(tmp_path / "password", "swordfish", mode)
    with pytest.raises(ConfigError) as caught:
        client_arguments(MqttSettings(username="a", password_file=path))
    assert str(caught.value) == (
        f"mqtt.password_file: {path}: may be read or written by everyone, expected mode 0600 or 0640"
    )
    assert "swordfish" not in str(caught.value)


def test_all_problems_of_the_files_at_once(tmp_path: Path) -> None:
    not_pem = secret(tmp_path / "not.pem", "nothing")
    settings = MqttSettings(
        username="a",
        password_file=tmp_path / "no-password",
        ca_file=tmp_path / "no-ca",
        cert_file=not_pem,
        key_file=not_pem,
    )
    with pytest.raises(ConfigError) as caught:
        client_arguments(settings)
    password, ca, cert = caught.value.problems
    assert password == f"mqtt.password_file: {tmp_path}/no-password: No such file or directory"
    assert ca == f"mqtt.ca_file: {tmp_path}/no-ca: No such file or directory"
    assert cert.startswith(f"mqtt.cert_file: {not_pem}: not usable: ")


def test_a_password_that_is_not_text(tmp_path: Path) -> None:
    path = secret(tmp_path / "password", "")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="password: not UTF-8"):
        client_arguments(MqttSettings(username="a", password_file=path))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_tls_with_a_client_certificate(tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    run_command(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]  # noqa: RUF005
        + ["-keyout", str(key), "-out", str(cert), "-days", "1", "-subj", "/CN=oss-1"]
    )
    key.chmod(0o600)
    context = client_arguments(MqttSettings(ca_file=cert, cert_file=cert, key_file=key))["tls_context"]
    assert context is not None
    assert context.check_hostname
    assert any(("commonName", "oss-1") in name for ca in context.get_ca_certs() for name in ca["subject"])


def test_settings_that_do_not_go_together() -> None:
    settings = MqttSettings(password_file=Path("x"), key_file=Path("y"))
    assert list(settings.problems()) == [
        ("password_file", "needs a username"),
        ("key_file", "needs a cert_file"),
    ]


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "a b", "a\0b"])
def test_a_host_that_no_resolver_takes(host: str) -> None:
    with pytest.raises(ConfigError, match=r"^host: expected a host name or an address, got '"):
        parse(MqttSettings, {"host": host})


@pytest.mark.parametrize("host", ["broker-1.example", "10.0.0.1", "::1", "fe80::1%eth0", "b\xfccher.example"])
def test_hosts(host: str) -> None:
    assert parse(MqttSettings, {"host": host}).host == host


def test_missing_files_may_come_and_wrong_ones_do_not(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    wrong.chmod(0o600)
    missing = tmp_path / "missing.pem"
    for ca, cert, may_pass in (
        (missing, None, True),
        (None, missing, True),
        (missing, missing, True),
        (wrong, None, False),
        (missing, wrong, False),
    ):
        with pytest.raises(ConfigError) as caught:
            client_arguments(MqttSettings(ca_file=ca, cert_file=cert))
        assert (caught.value.may_pass, caught.value.exit_code) == (may_pass, 1 if may_pass else 2)
        again = ConfigError("agent.toml", caught.value.problems)
        assert again.may_pass == may_pass
