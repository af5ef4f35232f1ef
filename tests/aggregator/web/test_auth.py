"""Who may ask the HTTP interface: real requests, with httpx and over real TLS."""

import asyncio
import base64
import re
import ssl
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.cli.client import Client
from laggard_aggregator.cli.daemon import main
from laggard_aggregator.settings.http import HttpSettings, tls_context
from laggard_aggregator.status.urls import ENDPOINTS
from laggard_aggregator.web.app import make_app
from laggard_aggregator.web.auth import (
    OPEN_PATHS,
    Credentials,
    authenticated,
    new_token,
    password_line,
    read_credentials,
)
from laggard_aggregator.web.server import MAX_CONNECTIONS, HttpServer
from laggard_common.errors import ConfigError, ServiceError
from tests.support.builders import live_status
from tests.support.processes import run_command

PASSWORD = "correct horse: battery"


@pytest.fixture(scope="module")
def line() -> str:
    """What the file says of `prometheus`."""
    return password_line("prometheus", PASSWORD)


def file_of(folder: Path, *lines: str, mode: int = 0o600) -> Path:
    path = folder / "credentials"
    path.write_text("\n".join(lines) + "\n")
    path.chmod(mode)
    return path


def read(path: Path) -> Credentials:
    found = read_credentials(path)
    assert found is not None
    return found


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def status(credentials: Credentials | None, path: str, *authorization: str) -> int:
    async def ask() -> int:
        transport = httpx.ASGITransport(authenticated(make_app(live_status.site()), credentials))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            answer = await client.get(path, headers=[("Authorization", one) for one in authorization])
            if answer.status_code == 401:
                assert answer.headers["www-authenticate"].startswith("Basic ")
                assert "luns" not in answer.text
            return answer.status_code

    return asyncio.run(ask())


def test_who_is_let_in(tmp_path: Path, line: str) -> None:
    token, token_line = new_token("grafana")
    known = read(file_of(tmp_path, "# who may ask", "", line, token_line))
    assert status(None, "/metrics") == 200
    assert status(known, "/metrics", basic("prometheus", PASSWORD)) == 200
    assert status(known, "/metrics", f"Bearer {token}") == 200
    for wrong in (
        basic("prometheus", PASSWORD + "x"),
        basic("prometheus", ""),
        basic("", PASSWORD),
        basic("grafana", token),
        basic("nobody", PASSWORD),
        f"Bearer {token[:-1]}",
        "Bearer",
        "Basic",
        "Basic !!!!",
        "Basic " + base64.b64encode(b"prometheus").decode(),
        f"Digest {token}",
        token,
        "Basic " + "A" * 5000,
    ):
        assert status(known, "/metrics", wrong) == 401, wrong
    assert status(known, "/metrics") == 401
    assert status(known, "/metrics", f"Bearer {token}", f"Bearer {token}") == 401


def test_only_health_is_open(tmp_path: Path, line: str) -> None:
    known = read(file_of(tmp_path, line))
    for path, _ in ENDPOINTS:
        assert (status(known, path) == 401) == (path not in OPEN_PATHS), path
    for path in ("/", "/nodes", "/static/style.css", "/events", "/healthz/../metrics", "/nothing"):
        assert status(known, path) == 401, path


def test_a_right_password_is_remembered_and_a_wrong_one_is_not(tmp_path: Path, line: str) -> None:
    known = read(file_of(tmp_path, line))
    right, wrong = basic("prometheus", PASSWORD).encode(), basic("prometheus", "other one").encode()
    assert known.check(right) is None
    assert known.verify(right)
    assert known.check(right) == "prometheus"
    assert not known.verify(wrong)
    assert known.check(wrong) is None


@given(st.binary(max_size=200))
def test_any_header_is_answered(header: bytes) -> None:
    known = Credentials({}, {"a": bytes(32)})
    assert known.check(header) in ("", None)


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ([], "has no names, so nobody could log in"),
        (["prometheus:secret"], "line 1: expected a line of laggard-aggregator --credential NAME"),
        (["a b:sha256:" + "0" * 64], "line 1: expected"),
        (["a:sha256:" + "0" * 63], "line 1: expected"),
        (["a:sha256:" + "0" * 64, "a:sha256:" + "1" * 64], "line 2: a is there twice"),
        (["a:scrypt:16:8:1:" + "0" * 32 + ":" + "0" * 64], "too weak or too costly"),
        (["a:scrypt:1048576:8:1:" + "0" * 32 + ":" + "0" * 64], "too weak or too costly"),
        (["\xff\xfe"], "line 1: expected"),
    ],
)
def test_files_that_are_none(tmp_path: Path, lines: list[str], what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        read_credentials(file_of(tmp_path, *lines))
    assert "secret" not in str(caught.value)


def test_a_file_that_everyone_may_read_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match="may be read or written by everyone"):
        read_credentials(file_of(tmp_path, line, mode=0o644))
    with pytest.raises(ConfigError, match="No such file"):
        read_credentials(tmp_path / "none")


def test_the_command_makes_lines_that_let_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "typed").write_text(PASSWORD + "\n")
    with (tmp_path / "typed").open() as typed:
        monkeypatch.setattr("sys.stdin", typed)
        assert main(["--credential", "prometheus"]) == 0
    assert main(["--credential", "grafana", "--token"]) == 0
    said = capsys.readouterr()
    known = read(file_of(tmp_path, said.out))
    assert PASSWORD not in said.out + said.err
    assert known.verify(basic("prometheus", PASSWORD).encode())
    assert known.check(b"Bearer " + said.err.split()[-1].encode())
    assert main(["--credential", "a/b", "--token"]) == 2
    assert main(["--config", "x", "--token"]) == 2


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> HttpSettings:
    """A certificate for localhost that nobody signed."""
    folder = tmp_path_factory.mktemp("https")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-keyout", str(key), "-out", str(cert), "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost"]
    try:
        run_command(command)
    except FileNotFoundError:
        pytest.skip("needs openssl to make a certificate")
    return HttpSettings(cert_file=cert, key_file=key)


def test_https_with_a_token(tmp_path: Path, certificate: HttpSettings) -> None:
    token, line = new_token("operator")
    app = authenticated(make_app(live_status.site()), read(file_of(tmp_path, line)))

    async def ask() -> None:
        stop, server = asyncio.Event(), HttpServer(app, "127.0.0.1:0", tls_context(certificate))
        server.bind()
        running = asyncio.create_task(server.run(stop))
        url = server.url.replace("127.0.0.1", "localhost")
        try:
            trusting = Client(url, token, certificate.cert_file)
            answer = await asyncio.to_thread(trusting.get, "/api/v1/stragglers")
            assert len(answer["stragglers"]) == 3
            with pytest.raises(
                ServiceError,
                match="answered 401: it needs a token, see --token-file",
            ):
                await asyncio.to_thread(Client(url, "", certificate.cert_file).get, "/api/v1/stragglers")
            with pytest.raises(ServiceError, match="no answer"):
                await asyncio.to_thread(Client(url, token).get, "/api/v1/stragglers")
            with pytest.raises(ServiceError):
                await asyncio.to_thread(Client(url.replace("https", "http"), token).get, "/healthz")
        finally:
            stop.set()
            await running

    asyncio.run(ask())


def test_certificates_that_cannot_be_used(tmp_path: Path, certificate: HttpSettings) -> None:
    assert tls_context(HttpSettings()) is None
    context = tls_context(certificate)
    assert context is not None
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    for path in (tmp_path / "none", file_of(tmp_path, "nothing")):
        with pytest.raises(ConfigError, match=r"http\.cert_file: .*: not usable: "):
            tls_context(HttpSettings(cert_file=path))
    assert list(HttpSettings(key_file=tmp_path).problems()) == [("key_file", "needs a cert_file")]


def test_a_key_that_everyone_may_read_is_refused(tmp_path: Path, certificate: HttpSettings) -> None:
    assert certificate.cert_file
    assert certificate.key_file
    key, both = tmp_path / "key.pem", tmp_path / "both.pem"
    key.write_bytes(certificate.key_file.read_bytes())
    both.write_bytes(certificate.cert_file.read_bytes() + key.read_bytes())
    for settings, problem in (
        (HttpSettings(cert_file=certificate.cert_file, key_file=key), f"http.key_file: {key}: may be read"),
        (HttpSettings(cert_file=both), f"http.cert_file: {both}: may be read"),
    ):
        for path in (key, both):
            path.chmod(0o644)
        with pytest.raises(ConfigError, match=re.escape(problem)):
            tls_context(settings)
        for path in (key, both):
            path.chmod(0o640)
        assert tls_context(settings)


def test_an_expired_certificate_is_served_and_no_client_of_ours_accepts_it(tmp_path: Path) -> None:
    key, request, cert = (tmp_path / name for name in ("old.key", "old.csr", "old.pem"))
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(key)]
    run_command(["openssl", "req", "-new", *new, "-subj", "/CN=localhost", "-out", str(request)])
    signed = ["-in", str(request), "-signkey", str(key), "-days", "-1", "-out", str(cert)]
    run_command(["openssl", "x509", "-req", *signed])
    app = make_app(live_status.site())

    async def ask() -> None:
        stop = asyncio.Event()
        server = HttpServer(app, "127.0.0.1:0", tls_context(HttpSettings(cert_file=cert, key_file=key)))
        server.bind()
        running = asyncio.create_task(server.run(stop))
        url = server.url.replace("127.0.0.1", "localhost")
        try:
            with pytest.raises(ServiceError, match="expired"):
                await asyncio.to_thread(Client(url, "", cert).get, "/api/v1/stragglers")
        finally:
            stop.set()
            await running

    asyncio.run(ask())


def test_half_open_handshakes_keep_nobody_out(tmp_path: Path, certificate: HttpSettings) -> None:
    """They are no connections yet: more of them than connections are allowed, silent or in the middle."""
    app = make_app(live_status.site())

    async def attack() -> None:
        stop, server = asyncio.Event(), HttpServer(app, "127.0.0.1:0", tls_context(certificate))
        server.bind()
        running = asyncio.create_task(server.run(stop))
        port = int(server.url.rpartition(":")[2])
        hello = bytes.fromhex("16030100c8010000c40303")  # a ClientHello of 200 bytes begins so
        links = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_CONNECTIONS + 50)]
        try:
            for _, writer in links[::2]:
                writer.write(hello)
            trusting = Client(f"https://localhost:{port}", "", certificate.cert_file)
            for _ in range(3):
                answer = await asyncio.to_thread(trusting.get, "/api/v1/stragglers")
                assert len(answer["stragglers"]) == 3
        finally:
            for _, writer in links:
                writer.close()
            stop.set()
            await running

    asyncio.run(attack())


def test_many_wrong_passwords_delay_no_token_and_no_known_password(tmp_path: Path) -> None:
    """One is verified at a time. Who is known waits for none of them; who is new waits his turn."""
    token, token_line = new_token("prometheus")
    known = read(file_of(tmp_path, f"{token_line}\n{password_line('alice', PASSWORD)}"))
    verified: list[str] = []
    app = authenticated(make_app(live_status.site()), known)
    verify = known.verify

    def counting(authorization: bytes) -> str:
        verified.append(verify(authorization))
        return verified[-1]

    known.verify = counting  # type: ignore[method-assign]

    async def attack() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:

            async def asked(path: str, authorization: str) -> int:
                return (await client.get(path, headers={"Authorization": authorization})).status_code

            right = basic("alice", PASSWORD)
            assert await asked("/api/v1/stragglers", right) == 200
            wrong = [
                asyncio.create_task(asked("/api/v1/stragglers", basic("alice", f"no{n}"))) for n in range(40)
            ]
            while len(verified) < 2:
                await asyncio.sleep(0.005)
            assert await asked("/api/v1/stragglers", right) == 200
            assert await asked("/metrics", f"Bearer {token}") == 200
            assert await asked("/healthz", "Bearer none") == 200
            assert len(verified) < 41, "they did not wait for the others"
            assert {await each for each in wrong} == {401}
            assert verified == ["alice", *[""] * 40]

    asyncio.run(attack())
