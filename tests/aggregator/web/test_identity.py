"""Who a request is: tokens signed by real keys, a proxy's header, names of the credentials file."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.jobs.access.principals import NOBODY, READ_ALL, Principal, Role
from laggard_aggregator.settings.identity import IdentityTable, PrincipalTable
from laggard_aggregator.web.identity import Identity, TokenVerifier, read_keys
from laggard_common.errors import ConfigError

ISSUER, AUDIENCE = "https://id.example.org", "laggard"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def public(key: Any, **more: str) -> dict[str, Any]:
    """The key as a provider serves it."""
    kind: Any = jwt.get_algorithm_by_name(
        {rsa.RSAPrivateKey: "RS256", ec.EllipticCurvePrivateKey: "ES256"}.get(
            next(
                (t for t in (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey) if isinstance(key, t)), type(key)
            ),
            "EdDSA",
        )
    )
    return {**json.loads(kind.to_jwk(key.public_key())), **more}


def jwks(folder: Path, *keys: dict[str, Any]) -> Path:
    path = folder / "jwks.json"
    path.write_text(json.dumps({"keys": keys}))
    return path


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> TokenVerifier:
    """Verifies tokens of three keys."""
    path = jwks(
        tmp_path_factory.mktemp("keys"), public(RSA, kid="r"), public(EC, kid="e"), public(ED, kid="d")
    )
    return TokenVerifier(read_keys(path), IdentityTable(path, ISSUER, AUDIENCE))


def claims(**changes: Any) -> dict[str, Any]:
    made = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 600} | changes
    return {name: value for name, value in made.items() if value is not None}


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "r", **changes: Any) -> bytes:
    head = {} if kid is None else {"kid": kid}
    return jwt.encode(claims(**changes), key, algorithm, headers=head).encode()


def forged(head: dict[str, Any], key: bytes = b"") -> bytes:
    """A token that the library would refuse to make."""

    def part(data: bytes) -> bytes:
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    signed = part(json.dumps(head).encode()) + b"." + part(json.dumps(claims()).encode())
    return signed + b"." + (part(hmac.digest(key, signed, hashlib.sha256)) if head["alg"] != "none" else b"")


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(RSA, "RS256", "r"), (RSA, "PS512", "r"), (EC, "ES256", "e"), (ED, "EdDSA", "d")],
)
def test_signed_tokens_have_a_user(verifier: TokenVerifier, key: Any, algorithm: str, kid: str) -> None:
    assert verifier.user(token(key, algorithm, kid)) == "alice"


PEM = RSA.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
REFUSED: dict[str, Callable[[], bytes]] = {
    "expired": lambda: token(exp=time.time() - 60),
    "never expires": lambda: token(exp=None),
    "not yet": lambda: token(nbf=time.time() + 600),
    "another audience": lambda: token(aud="grafana"),
    "no audience": lambda: token(aud=None),
    "another issuer": lambda: token(iss="https://evil.example.org"),
    "no issuer": lambda: token(iss=None),
    "no user": lambda: token(sub=None),
    "empty user": lambda: token(sub=""),
    "hostile user": lambda: token(sub="alice\n"),
    "forged": lambda: token(OTHER),
    "unknown key": lambda: token(kid="x"),
    "no key named": lambda: token(kid=None),
    "algorithm of another key": lambda: token(EC, "ES256", "r"),
    "none": lambda: forged({"alg": "none", "kid": "r"}),
    "None": lambda: forged({"alg": "None", "kid": "r"}),
    "hmac by the public key": lambda: forged({"alg": "HS256", "kid": "r"}, PEM),
    "hmac by an empty key": lambda: forged({"alg": "HS256", "kid": "r"}),
    "key in the token": lambda: jwt.encode(
        claims(), OTHER, "RS256", headers={"jwk": public(OTHER), "jku": "http://127.0.0.1:1/", "kid": "r"}
    ).encode(),
    "cut": lambda: token()[:-4],
    "too long": lambda: token(more="x" * 10_000),
    "critical extension": lambda: jwt.encode(
        claims(), RSA, "RS256", headers={"kid": "r", "crit": ["x"]}
    ).encode(),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_tokens_are_refused(verifier: TokenVerifier, case: str) -> None:
    assert verifier.user(REFUSED[case]()) == ""


@given(st.binary(max_size=200) | st.builds(lambda a, b: a + b"." + b + b".", st.binary(), st.binary()))
def test_any_bytes_are_refused(verifier: TokenVerifier, raw: bytes) -> None:
    assert verifier.user(raw) == ""


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        '{"keys": []}',
        '{"keys": [{}]}',
        '{"keys": [7]}',
        json.dumps({"keys": [{"kty": "oct", "k": "", "alg": "HS256"}]}),
        json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}]}),
        json.dumps({"keys": [{"kty": "RSA", "n": "", "e": ""}]}),
        json.dumps({"keys": [public(RSA, use="enc")]}),
        json.dumps({"keys": [public(RSA, alg="HS256")]}),
        json.dumps({"keys": [public(EC, alg="none")]}),
        json.dumps({"keys": [public(rsa.generate_private_key(public_exponent=65537, key_size=1024))]}),
        jwt.get_algorithm_by_name("RS256").to_jwk(RSA),
    ],
)
def test_unusable_keys_are_refused_at_the_start(tmp_path: Path, content: str) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"identity\.jwks_file"):
        read_keys(path)


def scope(peer: str, *users: str) -> dict[str, Any]:
    return {"client": (peer, 1), "headers": [(b"x-remote-user", user.encode()) for user in users]}


PROXY = IdentityTable(user_header="X-Remote-User", trusted_proxies=("10.0.0.1", "fd00::/8"))


@pytest.mark.parametrize(
    ("peer", "users", "name"),
    [
        ("10.0.0.1", ("alice",), "alice"),
        ("::ffff:10.0.0.1", ("alice",), "alice"),
        ("fd00::7", ("alice",), "alice"),
        ("10.0.0.2", ("alice",), ""),
        ("10.0.0.1", ("alice", "root"), ""),
        ("10.0.0.1", ("",), ""),
        ("10.0.0.1", (" alice",), ""),
        ("nonsense", ("alice",), ""),
    ],
)
def test_a_header_counts_from_a_trusted_proxy(peer: str, users: tuple[str, ...], name: str) -> None:
    expected = Principal(name, Role.USER) if name else NOBODY
    assert Identity(PROXY).of_request(scope(peer, *users)) == expected


def test_a_proxy_may_need_its_credential() -> None:
    settings = IdentityTable(user_header="X-Remote-User", trusted_proxies=("10.0.0.1",), proxy_credential="p")
    asked = scope("10.0.0.1", "alice")
    assert Identity(settings).of_request(asked, "p").name == "alice"
    assert Identity(settings).of_request(asked, "grafana").name == "grafana"
    assert Identity(settings).of_request(asked) == NOBODY


@pytest.mark.parametrize("users", [(), ("",), ("alice", "bob"), ("\x1b",)])
def test_a_proxy_without_a_user_is_nobody_though_its_credential_is_an_operators(
    users: tuple[str, ...],
) -> None:
    settings = IdentityTable(user_header="X-Remote-User", trusted_proxies=("10.0.0.1",), proxy_credential="p")
    assert Identity(settings, operators=["p"]).of_request(scope("10.0.0.1", *users), "p") == NOBODY


def test_a_proxys_empty_header_is_nobody_whatever_credential_came_along() -> None:
    assert Identity(PROXY, operators=["ops"]).of_request(scope("10.0.0.1", ""), "ops") == NOBODY
    assert Identity(PROXY, operators=["ops"]).of_request(scope("10.0.0.1"), "ops").role is Role.ADMIN


def test_roles_are_those_of_the_settings() -> None:
    tables = (
        PrincipalTable("mona", "manager", ("physics",)),
        PrincipalTable("sue", "support"),
        PrincipalTable("grafana", "api", scopes=(READ_ALL,)),
    )
    found = Identity(PROXY, tables, ["ops"])
    nobody = scope("10.0.0.9")
    assert found.of_request(nobody, user="mona") == Principal("mona", Role.MANAGER, frozenset({"physics"}))
    assert found.of_request(nobody, user="sue").sees_all
    assert found.of_request(nobody, "grafana").sees_all
    assert found.of_request(nobody, "ops").role is Role.ADMIN
    # Neither a token's user nor a proxy's gets the rights of a name of the credentials file.
    assert found.of_request(nobody, user="grafana") == NOBODY
    assert found.of_request(scope("10.0.0.1", "ops")).role is Role.USER
    assert found.of_request(nobody) == NOBODY
    assert Identity(IdentityTable(anyone_reads=True)).of_request(nobody).sees_all
