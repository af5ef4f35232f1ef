"""Authentication of HTTP requests: names with passwords or tokens, whose hashes a file holds.

A line of the file is `NAME:scrypt:N:R:P:SALT:HASH` for a password (RFC 7914, hexadecimal salt and hash) or
`NAME:sha256:HASH` for a token, whose 256 random bits need no slow hash; `#` begins a comment. `/healthz` and
`/readyz` need no authentication.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from laggard_aggregator.web.identity import Identity
from laggard_common.errors import ConfigError
from laggard_common.secret_files import problem, unfit

MAX_FILE_BYTES = 1024 * 1024
MAX_HEADER_BYTES = 1024
MAX_REMEMBERED = 256
OPEN_PATHS = frozenset({"/healthz", "/readyz"})

_CHALLENGE = 'Basic realm="Laggard", charset="UTF-8"'
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_PASSWORD = re.compile(
    r"scrypt:(?P<n>[0-9]{1,7}):(?P<r>[0-9]{1,2}):(?P<p>[0-9]{1,2}):(?P<salt>(?:[0-9a-f]{2}){8,64}):(?P<hash>[0-9a-f]{64})"
)
_TOKEN = re.compile(r"sha256:(?P<hash>[0-9a-f]{64})")
_N, _R, _P = 2**14, 8, 1  # 16 MiB and about 40 ms per attempt
_MAX_MEMORY_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """Parameters, salt and hash of scrypt."""

    n: int
    r: int
    p: int
    salt: bytes
    hash: bytes

    def matches(self, password: bytes) -> bool:
        """Whether `password` has this hash. Takes tens of milliseconds, by design."""
        return hmac.compare_digest(_scrypt(password, self.salt, self.n, self.r, self.p), self.hash)


class Credentials:
    """Password hashes and SHA-256 hashes of tokens, by name.

    A verified password is remembered as a keyed hash in memory, so that repeated scrapes cost no scrypt.
    """

    def __init__(self, passwords: Mapping[str, PasswordHash], tokens: Mapping[str, bytes]) -> None:
        self._passwords = dict(passwords)
        self._tokens = dict(tokens)
        self._key = secrets.token_bytes(32)
        self._verified: dict[bytes, str] = {}
        self._nobody = PasswordHash(_N, _R, _P, secrets.token_bytes(16), bytes(32))

    @property
    def names(self) -> frozenset[str]:
        """All names of the file."""
        return frozenset((*self._passwords, *self._tokens))

    def check(self, authorization: bytes) -> str | None:
        """The name of a header `Authorization`, empty when invalid; None when only `verify` can say."""
        scheme, _, rest = authorization[:MAX_HEADER_BYTES].partition(b" ")
        if len(authorization) > MAX_HEADER_BYTES:
            return ""
        if scheme.lower() == b"bearer":
            given = hashlib.sha256(rest.strip()).digest()
            names = [name for name, known in self._tokens.items() if hmac.compare_digest(given, known)]
            return names[0] if names else ""
        if scheme.lower() != b"basic" or _name_and_password(rest) is None:
            return ""
        return self._verified.get(self._keyed_hash(rest))

    def verify(self, authorization: bytes) -> str:
        """The name of `Authorization: Basic ...`, empty when invalid; slow, to be called in a thread."""
        rest = authorization.partition(b" ")[2]
        given = _name_and_password(rest)
        if given is None:
            return ""
        name, password = given
        # An unknown name takes as long, so that names cannot be guessed.
        valid = self._passwords.get(name, self._nobody).matches(password) and name in self._passwords
        if valid:
            if len(self._verified) >= MAX_REMEMBERED:
                self._verified.clear()
            self._verified[self._keyed_hash(rest)] = name
        return name if valid else ""

    def _keyed_hash(self, rest: bytes) -> bytes:
        return hmac.digest(self._key, rest.strip(), "sha256")


def authenticated(app: ASGIApp, credentials: Credentials | None, identity: Identity | None = None) -> ASGIApp:
    """`app` behind authentication by `credentials` and the tokens of `identity`; open without both."""
    return _Authentication(app, credentials, identity or Identity())


class _Authentication:
    """Answers requests without valid credentials with 401.

    The others have their `principal` in the scope, and in `user` the name of the credentials file.
    """

    def __init__(self, app: ASGIApp, credentials: Credentials | None, identity: Identity) -> None:
        self._app = app
        self._credentials = credentials
        self._identity = identity
        self._is_open = credentials is None and identity.tokens is None
        self._verifying = asyncio.Semaphore(1)  # wrong passwords cost at most one core

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        authorization = given[0] if len(given) == 1 and not self._is_open else b""
        token_user = self._token_user(authorization)
        user = "" if token_user or not authorization else await self._user(authorization)
        if user or token_user or self._is_open:
            more: dict[str, object] = {"principal": self._identity.of_request(scope, user, token_user)}
            await self._app({**scope, **more, **({"user": user} if user else {})}, receive, send)
        else:
            content = {"error": "name and password, or a token, are needed", "status": 401}
            response = JSONResponse(content, 401, headers={"www-authenticate": _CHALLENGE})
            await response(scope, receive, send)

    def _token_user(self, authorization: bytes) -> str:
        """User of a token of the identity provider, empty without a valid one."""
        scheme, _, rest = authorization.partition(b" ")
        if self._identity.tokens is None or scheme.lower() != b"bearer":
            return ""
        return self._identity.tokens.user(rest.strip())

    async def _user(self, authorization: bytes) -> str:
        """Name of the credentials file, empty without valid ones."""
        if self._credentials is None:
            return ""
        user = self._credentials.check(authorization)
        if user is None:
            async with self._verifying:
                user = await asyncio.to_thread(self._credentials.verify, authorization)
        return user


def read_credentials(path: Path | None, operators: Iterable[str] = ()) -> Credentials | None:
    """Reads the file `http.credentials_file`; None without one. `operators`: names that it must have.

    Raises ConfigError, which never shows a line's content.
    """
    if path is None:
        return None
    reason = unfit(path)
    if reason is not None:
        raise _problem(path, reason)
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as exc:
        raise _problem(path, exc.strerror or str(exc)) from exc
    if len(data) > MAX_FILE_BYTES:
        raise _problem(path, f"longer than {MAX_FILE_BYTES} bytes")
    passwords: dict[str, PasswordHash] = {}
    tokens: dict[str, bytes] = {}
    for number, raw in enumerate(data.splitlines(), 1):
        line = raw.decode("ascii", "replace").strip()
        if not line or line.startswith("#"):
            continue
        name, _, rest = line.partition(":")
        password, token = _PASSWORD.fullmatch(rest), _TOKEN.fullmatch(rest)
        if not _NAME.fullmatch(name) or (password is None and token is None):
            raise _problem(path, f"line {number}: expected a line of laggard-aggregator --credential NAME")
        if name in passwords or name in tokens:
            raise _problem(path, f"line {number}: {name} is there twice")
        if token is not None:
            tokens[name] = bytes.fromhex(token["hash"])
        elif password is not None:
            passwords[name] = _parse_password(path, number, password)
    if not passwords and not tokens:
        raise _problem(path, "has no names, so nobody could log in")
    credentials = Credentials(passwords, tokens)
    if unknown := [name for name in operators if name not in credentials.names]:
        raise ConfigError("", [f"http.operators: {', '.join(unknown)}: not in {path}"])
    return credentials


def password_line(name: str, password: str) -> str:
    """The file's line for a password. Raises ValueError for an invalid name."""
    salt = secrets.token_bytes(16)
    digest = _scrypt(password.encode(), salt, _N, _R, _P)
    return f"{_checked(name)}:scrypt:{_N}:{_R}:{_P}:{salt.hex()}:{digest.hex()}"


def new_token(name: str) -> tuple[str, str]:
    """A random token, and the file's line for it. Raises ValueError for an invalid name."""
    token = secrets.token_urlsafe(32)
    return token, f"{_checked(name)}:sha256:{hashlib.sha256(token.encode()).hexdigest()}"


def _parse_password(path: Path, number: int, match: re.Match[str]) -> PasswordHash:
    n, r, p = int(match["n"]), int(match["r"]), int(match["p"])
    if n < 2**14 or n & (n - 1) or not 1 <= p <= 16 or r < 8 or 128 * n * r > _MAX_MEMORY_BYTES // 2:
        raise _problem(path, f"line {number}: scrypt with N={n}, r={r}, p={p} is too weak or too costly")
    return PasswordHash(n, r, p, bytes.fromhex(match["salt"]), bytes.fromhex(match["hash"]))


def _scrypt(password: bytes, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=n, r=r, p=p, maxmem=_MAX_MEMORY_BYTES, dklen=32)


def _name_and_password(encoded: bytes) -> tuple[str, bytes] | None:
    """Name and password of Basic authentication (RFC 7617); None for malformed ones."""
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except binascii.Error:
        return None
    return (name.decode("utf-8", "replace"), password) if colon else None


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"not a name: {name!r} (letters, digits and . _ -)")
    return name


def _problem(path: Path, reason: str) -> ConfigError:
    return ConfigError("", [problem("http.credentials_file", path, reason)])
