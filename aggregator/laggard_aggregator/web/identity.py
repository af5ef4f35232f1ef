"""The principal of a request: by a token of an identity provider, a proxy's header, or the credentials file.

Tokens are JWTs with a signature by one of the configured public keys. Only algorithms of the key's own type
are tried: neither `none` nor HMAC, with which a public key would be a secret. The default is to be nobody.
"""

import ipaddress
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from laggard_aggregator.jobs.access.principals import NOBODY, Principal, Role
from laggard_aggregator.settings.identity import IdentityTable, PrincipalTable
from laggard_common.errors import ConfigError
from laggard_common.secret_files import problem

MAX_TOKEN_BYTES = 8192
MAX_KEY_BYTES = 1024 * 1024
MAX_USER_CHARS = 256
LEEWAY_SECONDS = 30.0
"""Difference of clocks that an expired or early token may have."""
MIN_RSA_BITS = 2048
_ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
}
_REQUIRED = ("exp", "iss", "aud")


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key of the identity provider, with the algorithms that its type allows."""

    identifier: str
    key: Any
    algorithms: tuple[str, ...]


class TokenVerifier:
    """Verifies the tokens of one issuer for one audience."""

    def __init__(self, keys: Iterable[VerifyingKey], settings: IdentityTable) -> None:
        self._keys = tuple(keys)
        self._settings = settings

    def user(self, token: bytes) -> str:
        """The user of a token, empty for an invalid one."""
        if len(token) > MAX_TOKEN_BYTES or token.count(b".") != 2:
            return ""
        try:
            head = jwt.get_unverified_header(token)
            for key in self._matching(head.get("kid")):
                if head.get("alg") in key.algorithms:
                    return self._verified(token, key)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError):
            return ""
        return ""

    def _matching(self, identifier: object) -> tuple[VerifyingKey, ...]:
        """The keys of this identifier; without one, the only key."""
        if identifier is None:
            return self._keys if len(self._keys) == 1 else ()
        return tuple(key for key in self._keys if key.identifier == identifier)

    def _verified(self, token: bytes, key: VerifyingKey) -> str:
        settings = self._settings
        claims = jwt.decode(
            token,
            key.key,
            algorithms=list(key.algorithms),
            audience=settings.audience,
            issuer=settings.issuer,
            leeway=LEEWAY_SECONDS,
            options={"require": [*_REQUIRED, settings.user_claim]},
        )
        user = claims[settings.user_claim]
        return user if isinstance(user, str) and _is_name(user) else ""


class Identity:
    """Decides who a request is. `operators`: names of the credentials file that read as administrators.

    Raises ConfigError when a file cannot be used.
    """

    def __init__(
        self,
        settings: IdentityTable | None = None,
        principals: Iterable[PrincipalTable] = (),
        operators: Collection[str] = (),
    ) -> None:
        self._settings = settings or IdentityTable()
        self._principals: Mapping[str, PrincipalTable] = {table.name: table for table in principals}
        self._operators = frozenset(operators)
        path = self._settings.jwks_file
        self.tokens = None if path is None else TokenVerifier(read_keys(path), self._settings)
        self._proxies = tuple(ipaddress.ip_network(network) for network in self._settings.trusted_proxies)
        self._header = self._settings.user_header.lower().encode()

    def of_request(self, scope: Mapping[str, Any], credential: str = "", user: str = "") -> Principal:
        """The principal of a request with a name of the credentials file, or a token's `user`."""
        if user:
            return self._principal(user)
        if self._is_proxy(scope, credential):
            given = [value for name, value in scope["headers"] if name == self._header]
            if len(given) == 1 and given[0]:
                return self._principal(_text(given[0]))
            if given or self._settings.proxy_credential:  # nobody is signed in; the proxy is no user itself
                return NOBODY
        if credential:
            return self._of_credential(credential)
        return Principal("", Role.SUPPORT) if self._settings.anyone_reads else NOBODY

    def _is_proxy(self, scope: Mapping[str, Any], credential: str) -> bool:
        if not self._header or credential != (self._settings.proxy_credential or credential):
            return False
        client = scope.get("client")
        try:
            address = ipaddress.ip_address(client[0]) if client else None
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return address is not None and any((mapped or address) in proxy for proxy in self._proxies)

    def _of_credential(self, name: str) -> Principal:
        if name not in self._principals and name in self._operators:
            return Principal(name, Role.ADMIN)
        principal = self._principals.get(name)
        if principal is not None and principal.role == Role.API:
            return Principal(name, Role.API, scopes=frozenset(principal.scopes))
        return self._principal(name)

    def _principal(self, name: str) -> Principal:
        """The principal of a person; a name of role api is none."""
        if not _is_name(name):
            return NOBODY
        principal = self._principals.get(name)
        if principal is None:
            return Principal(name, Role.USER)
        if principal.role == Role.API:
            return NOBODY
        return Principal(name, Role(principal.role), frozenset(principal.projects))


def read_keys(path: Path) -> list[VerifyingKey]:
    """The verifying keys of a JWKS file (RFC 7517). Raises ConfigError, also for a secret or a weak key."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_KEY_BYTES + 1)
    except OSError as exc:
        raise _problem(path, exc.strerror or str(exc)) from exc
    if len(data) > MAX_KEY_BYTES:
        raise _problem(path, f"longer than {MAX_KEY_BYTES} bytes")
    try:
        listed = json.loads(data)["keys"]
        keys = [_verifying(path, key) for key in listed if key.get("use", "sig") == "sig"]
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        raise _problem(
            path, "expected a JSON object with the public keys, as the provider serves it"
        ) from exc
    if not keys:
        raise _problem(path, "has no key for signatures")
    return keys


def _verifying(path: Path, given: dict[str, Any]) -> VerifyingKey:
    name, kind = str(given.get("kid", "")), given.get("kty")
    if kind not in ("RSA", "EC", "OKP") or "d" in given:
        raise _problem(path, f"key {name[:64]!r}: expected a public key, neither a secret nor a private one")
    of_type = _ALGORITHMS.get("RSA" if kind == "RSA" else str(given.get("crv")), ())
    algorithms = tuple(algorithm for algorithm in of_type if algorithm == given.get("alg", algorithm))
    if not algorithms:
        raise _problem(path, f"key {name[:64]!r}: no algorithm for it")
    key = jwt.PyJWK.from_dict(given).key
    if isinstance(key, RSAPublicKey) and key.key_size < MIN_RSA_BITS:
        raise _problem(path, f"key {name[:64]!r}: RSA with {key.key_size} bits is too weak")
    return VerifyingKey(name, key, algorithms)


def _is_name(user: str) -> bool:
    return bool(user) and len(user) <= MAX_USER_CHARS and user.isprintable() and user == user.strip()


def _text(raw: bytes) -> str:
    """A header's value; empty if it is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return ""


def _problem(path: Path, reason: str) -> ConfigError:
    return ConfigError("", [problem("identity.jwks_file", path, reason)])
