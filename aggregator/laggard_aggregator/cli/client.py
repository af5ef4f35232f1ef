"""HTTP client of a running aggregator, for commands that read."""

import argparse
import http.client
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from laggard_common.errors import ConfigError, ServiceError

DEFAULT_URL = "http://127.0.0.1:9464"
TIMEOUT_SECONDS = 5.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_TOKEN_CHARS = 8192
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Client:
    """Client of the aggregator at `url`, with an optional token.

    `ca_file`: CA of its certificate. `timeout`: of connecting and of each read, in seconds.
    """

    url: str
    token: str = ""
    ca_file: Path | None = None
    timeout: float = TIMEOUT_SECONDS

    def get(self, path: str) -> Any:
        """Requests the JSON at `path`.

        Raises ConfigError for an invalid URL, ServiceError with one line for any failed request.
        """
        return self._read(path, "application/json", json.loads)

    def text(self, path: str) -> str:
        """Requests the text at `path`, raises as `get`."""
        return self._read(path, "*/*", bytes.decode)

    def _read(self, path: str, accept: str, parse: Callable[[bytes], T]) -> T:
        connection, prefix = self._connection()
        headers = {"Accept": accept}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            connection.request("GET", prefix + path, headers=headers)
            response = connection.getresponse()
            body = response.read(MAX_ANSWER_BYTES)
            if response.status == http.client.UNAUTHORIZED:
                said = "it does not know the token of" if self.token else "it needs a token, see"
                raise ServiceError(f"{self.url}: answered 401: {said} --token-file")
            if response.status != http.client.OK:
                raise ServiceError(f"{self.url}: answered {response.status} {response.reason} to {path}")
            return parse(body)
        except OSError as exc:
            raise ServiceError(f"{self.url}: no answer: {exc.strerror or exc}") from exc
        except (http.client.HTTPException, ValueError) as exc:
            raise ServiceError(f"{self.url}: not a laggard aggregator's answer to {path}") from exc
        finally:
            connection.close()

    def _connection(self) -> tuple[http.client.HTTPConnection, str]:
        """An unopened connection, and the prefix of all paths."""
        parts = urlsplit(self.url)
        try:
            host, port = parts.hostname, parts.port
        except ValueError as exc:
            raise ConfigError("", [f"--url: {exc}: {self.url!r}"]) from exc
        if parts.scheme not in ("http", "https") or not host:
            raise ConfigError("", [f"--url: expected http://HOST:PORT, got {self.url!r}"])
        prefix = parts.path.rstrip("/")
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=self.timeout), prefix
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as exc:
            raise ConfigError("", [f"--ca-file: {self.ca_file}: {exc.strerror or exc}"]) from exc
        return http.client.HTTPSConnection(host, port, timeout=self.timeout, context=context), prefix


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares `--url`, `--token-file` and `--ca-file`."""
    parser.add_argument("--url", default=DEFAULT_URL, help="the aggregator's address (default %(default)s)")
    add_access(parser)


def add_access(parser: argparse.ArgumentParser) -> None:
    """Declares `--token-file` and `--ca-file`."""
    add = parser.add_argument
    add("--token-file", type=Path, metavar="FILE", help="a token that the aggregator knows")
    add("--ca-file", type=Path, metavar="FILE", help="who signed the aggregator's certificate")


def of(args: argparse.Namespace) -> Client:
    """Client for the options. Raises ConfigError for a file without a token."""
    return Client(args.url, token(args.token_file), args.ca_file)


def token(path: Path | None) -> str:
    """The token in the file, empty without one. Raises ConfigError."""
    if path is None:
        return ""
    try:
        with path.open(encoding="ascii") as stream:
            text = stream.read(MAX_TOKEN_CHARS + 1).strip()
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "not a token"
        raise ConfigError("", [f"--token-file: {path}: {reason}"]) from exc
    if not text or len(text) > MAX_TOKEN_CHARS or not text.isprintable() or " " in text:
        raise ConfigError("", [f"--token-file: {path}: not a token"])
    return text
