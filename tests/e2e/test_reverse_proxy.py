"""The shipped configurations of nginx before a real aggregator: TLS, credentials, limits, single sign-on."""

import contextlib
import http.server
import re
import shutil
import socket
import ssl
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from tests.support.container import PROJECT
from tests.support.pki import issued
from tests.support.ports import free_port
from tests.support.processes import get_text, run_command, running
from tests.support.wait import LIMIT_SECONDS, wait_until

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin") or shutil.which("nginx")
AGGREGATOR = Path(sys.executable).parent / "laggard-aggregator"
SIGNED_IN = {"Cookie": "session=signed-in"}

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(NGINX is None, reason="needs nginx"),
]


class Gateway(http.server.BaseHTTPRequestHandler):
    """Answers as oauth2-proxy does: 202 or 401 at /oauth2/auth, a page at /oauth2/sign_in."""

    def do_GET(self) -> None:
        body = b""
        if self.path == "/oauth2/sign_in":
            body = f"sign in for {self.headers['X-Auth-Request-Redirect']}".encode()
        known = self.headers.get("Cookie") == SIGNED_IN["Cookie"]
        self.send_response(200 if body else 202 if known else 401)
        if known:
            self.send_header("X-Auth-Request-User", "alice")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Logs nothing."""


class Echo(http.server.BaseHTTPRequestHandler):
    """Stands for the aggregator; answers with the users that a request names, one a line."""

    def do_GET(self) -> None:
        body = "\n".join(self.headers.get_all("X-Remote-User", [])).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Logs nothing."""


@contextlib.contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[int]:
    """Runs an HTTP server; its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Site:
    """An aggregator with a token of a program, behind nginx."""

    url: str
    token: str
    tls: ssl.SSLContext

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Status and body."""
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_SECONDS, context=self.tls) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code, exc.read().decode()


def credential(name: str) -> tuple[str, str]:
    """A line of the credentials file, and its token."""
    done = run_command([AGGREGATOR, "--credential", name, "--token"])
    return done.stdout, done.stderr.split()[-1]


def nginx_command(folder: Path, sample: str) -> list[str | Path]:
    """The command of nginx with this configuration within `http { }`."""
    assert NGINX is not None
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "site.conf").write_text(sample)
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log stderr;\nevents {{}}\n"
        f"http {{ access_log off;\n{temporary}include {folder}/site.conf;\n}}\n"
    )
    return [NGINX, "-p", folder, "-e", "stderr", "-c", folder / "nginx.conf"]


def shipped(name: str, folder: Path, token: str, *, inner: int, outer: int, gateway: int) -> str:
    """The configuration of this name, its paths and ports replaced, with certificates in `folder`."""
    certificates = issued(folder / "ca")
    sample = (PROJECT / "deploy/nginx" / name).read_text()
    shown = re.findall(r"^#   (map .*\n(?:#  .*\n)+)", sample, re.MULTILINE)
    (folder / "token").write_text("".join(shown).replace("\n#", "\n").replace("TOKEN", token))
    for old, new in (
        ("/etc/laggard/http.pem", str(certificates / "issued/laggard-broker.pem")),
        ("/etc/laggard/http.key", str(certificates / "issued/laggard-broker.key")),
        ("/etc/nginx/laggard-token", str(folder / "token")),
        ("listen 9464 ssl", f"listen 127.0.0.1:{outer} ssl"),
        ("listen 443 ssl", f"listen 127.0.0.1:{outer} ssl"),
        ("127.0.0.1:9465", f"127.0.0.1:{inner}"),
        ("127.0.0.1:4180", f"127.0.0.1:{gateway}"),
    ):
        sample = sample.replace(old, new)
    return sample


@contextlib.contextmanager
def proxied(name: str, folder: Path) -> Iterator[Site]:
    """The site behind the configuration of this name."""
    line, token = credential("prometheus")
    proxy_line, proxy_token = credential("proxy")
    (folder / "credentials").write_text(line + proxy_line)
    (folder / "credentials").chmod(0o600)
    inner, outer = free_port(), free_port()
    (folder / "aggregator.toml").write_text(
        f'[mqtt]\nembedded = true\nport = {free_port()}\n[http]\nlisten = "127.0.0.1:{inner}"\n'
        f'credentials_file = "{folder}/credentials"\nexternal_url = "https://127.0.0.1:{outer}"\n'
    )
    with serving(Gateway) as gateway:
        sample = shipped(name, folder, proxy_token, inner=inner, outer=outer, gateway=gateway)
        nginx = nginx_command(folder, sample)
        with (
            running([AGGREGATOR, "--config", folder / "aggregator.toml"], folder / "aggregator.log"),
            running(nginx, folder / "nginx.log"),
        ):
            wait_until(lambda: get_text(f"http://127.0.0.1:{inner}/readyz"), "the aggregator")
            wait_until(lambda: answers(outer), "nginx")
            tls = ssl.create_default_context(cafile=folder / "ca/ca.pem")
            yield Site(f"https://127.0.0.1:{outer}", token, tls)


PATHS = ("/", "/api/v1/jobs", "/events", "/healthz", "/readyz", "/laggard/")


@pytest.mark.parametrize("name", ["laggard.conf", "laggard-sso.conf", "docs/security.md"])
def test_nobody_is_whom_they_say(tmp_path: Path, name: str) -> None:
    """A client's own header of users passes no shipped configuration, beside the proxy's credential."""
    outer = free_port()
    with serving(Gateway) as gateway, serving(Echo) as inner:
        if name == "docs/security.md":
            (sample,) = re.findall("```nginx\n(map .*?)```", (PROJECT / name).read_text(), re.DOTALL)
            sample = sample.replace("listen 443 ssl", f"listen 127.0.0.1:{outer}")
            sample = sample.replace("127.0.0.1:9465", f"127.0.0.1:{inner}")
            url, tls = f"http://127.0.0.1:{outer}", ssl.create_default_context()
        else:
            sample = shipped(name, tmp_path, "token", inner=inner, outer=outer, gateway=gateway)
            url = f"https://127.0.0.1:{outer}"
            tls = ssl.create_default_context(cafile=tmp_path / "ca/ca.pem")
        with running(nginx_command(tmp_path, sample), tmp_path / "nginx.log"):
            wait_until(lambda: answers(outer), "nginx")
            site = Site(url, "", tls)
            for path in PATHS:
                for headers in (SIGNED_IN, {"Authorization": "Bearer any"}, {}):
                    status, users = site.get(path, **headers, **{"X-Remote-User": "mallory"})
                    signed_in = name == "laggard-sso.conf" and headers is SIGNED_IN
                    has_user = signed_in and path not in ("/healthz", "/readyz")
                    assert status in (200, 401, 403, 404)
                    assert "mallory" not in users, (path, headers)
                    assert users == "alice" if has_user else "alice" not in users


def test_the_pages_are_served_below_a_path(tmp_path: Path) -> None:
    """nginx as docs/security.md has it; a group's name keeps its encoded slash."""
    inner, outer = free_port(), free_port()
    (tmp_path / "aggregator.toml").write_text(
        f'[mqtt]\nembedded = true\nport = {free_port()}\n[http]\nlisten = "127.0.0.1:{inner}"\n'
        f'external_url = "http://127.0.0.1:{outer}/laggard"\n'
    )
    (shown,) = re.findall("```nginx\n(map .*?)```", (PROJECT / "docs/security.md").read_text(), re.DOTALL)
    sample = shown.replace("listen 443 ssl", f"listen 127.0.0.1:{outer}").replace(
        "127.0.0.1:9465", f"127.0.0.1:{inner}"
    )
    nginx = nginx_command(tmp_path, sample)
    with (
        running([AGGREGATOR, "--config", tmp_path / "aggregator.toml"], tmp_path / "aggregator.log"),
        running(nginx, tmp_path / "nginx.log"),
    ):
        wait_until(lambda: get_text(f"http://127.0.0.1:{inner}/readyz"), "the aggregator")
        wait_until(lambda: answers(outer), "nginx")
        site = Site(f"http://127.0.0.1:{outer}", "", ssl.create_default_context())
        for path in ("/laggard", "/laggard/", "/laggard/nodes", "/laggard/search?q=%2F"):
            status, text = site.get(path)
            assert status == 200, path
            links = re.findall('(?:href|src|action)="([^"#]*)"', text)
            found = {urljoin(f"{site.url}/laggard/", link) for link in links}
            assert all(link.startswith(f"{site.url}/laggard/") for link in found)
            assert {site.get(link.removeprefix(site.url))[0] for link in found if "/readyz" not in link} == {
                200
            }
        status, text = site.get("/laggard/component/storage%2Fdiskstats/oss-1/sda")
        assert (status, "no group &#39;storage/diskstats&#39;" in text) == (404, True)


def answers(port: int) -> bool:
    """Whether somebody listens on this port."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), LIMIT_SECONDS):
        return True
    return False


def test_the_proxy_passes_credentials_and_limits_requests(tmp_path: Path) -> None:
    with proxied("laggard.conf", tmp_path) as site:
        bearer = {"Authorization": f"Bearer {site.token}"}
        assert site.get("/readyz")[0] == 200
        assert site.get("/")[0] == 401
        assert site.get("/api/v1/nodes", Authorization="Bearer wrong")[0] == 401
        assert site.get("/", **bearer)[0] == 200
        assert "laggard_ready 1.0" in site.get("/metrics", **bearer)[1]
        assert site.get("/", **bearer, Cookie="x" * 17_000)[0] == 400
        page = urllib.request.Request(f"{site.url}/events", headers=bearer)
        with urllib.request.urlopen(page, timeout=LIMIT_SECONDS, context=site.tls) as events:
            assert events.headers["Content-Type"].startswith("text/event-stream")


def test_single_sign_on_shows_the_pages_and_programs_keep_their_tokens(tmp_path: Path) -> None:
    with proxied("laggard-sso.conf", tmp_path) as site:
        assert site.get("/node/oss-1?from=1&to=2") == (403, "sign in for /node/oss-1?from=1&to=2")
        assert site.get("/oauth2/auth")[0] == 404
        assert site.get("/", **SIGNED_IN)[0] == 200
        assert '"nodes"' in site.get("/api/v1/nodes", **SIGNED_IN)[1]
        assert site.get("/metrics", Authorization=f"Bearer {site.token}")[0] == 200
        assert site.get("/metrics", Authorization="Bearer wrong")[0] == 401
        assert site.get("/metrics", **SIGNED_IN, Authorization="Bearer wrong")[0] == 401
        assert site.get("/metrics") == (403, "sign in for /metrics")
        assert site.get("/readyz")[0] == 200
