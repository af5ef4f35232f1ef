"""`[identity]` and `[[principal]]`: how a request names its user, and the roles of users for jobs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from laggard_common.config import checked, distinct, each, network, non_empty, one_of

ROLES = ("user", "manager", "support", "admin", "api")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}", re.ASCII)
_SCOPE = re.compile(r"jobs:read:(?:all|project=.+|user=.+)")


def _header(value: str) -> str | None:
    if value and (not _HEADER.fullmatch(value) or value.lower() in ("authorization", "cookie", "host")):
        return f"expected the name of a header such as X-Remote-User, got {value[:64]!r}"
    return None


def _scope(value: str) -> str | None:
    right = _SCOPE.fullmatch(value)
    return None if right else f"expected jobs:read:all, ...:project=NAME or ...:user=NAME, got {value[:64]!r}"


@dataclass(frozen=True, slots=True)
class IdentityTable:
    """`[identity]`.

    `jwks_file`: public keys of the identity provider, whose tokens need `issuer`, `audience` and an expiry;
    `user_claim` has the user. `user_header`: header with the user, set by a proxy at one of
    `trusted_proxies`, with `proxy_credential` of the credentials file if that is given. `anyone_reads`:
    requests without a user read all jobs.
    """

    jwks_file: Path | None = None
    issuer: str = ""
    audience: str = ""
    user_claim: str = field(default="sub", metadata=checked(non_empty()))
    user_header: str = field(default="", metadata=checked(_header))
    trusted_proxies: tuple[str, ...] = field(default=(), metadata=checked(distinct(), each(network)))
    proxy_credential: str = ""
    anyone_reads: bool = False

    def problems(self) -> Iterator[tuple[str, str]]:
        """Settings that do not go together."""
        if self.jwks_file is not None and not (self.issuer and self.audience):
            yield "jwks_file", "needs an issuer and an audience"
        if self.jwks_file is None and (self.issuer or self.audience):
            yield "issuer" if self.issuer else "audience", "needs a jwks_file"
        if bool(self.user_header) != bool(self.trusted_proxies):
            yield "user_header", "needs trusted_proxies, and they need it"
        if self.proxy_credential and not self.user_header:
            yield "proxy_credential", "needs a user_header"
        if self.anyone_reads and (self.jwks_file is not None or self.user_header):
            yield "anyone_reads", "is for a site without users: not with jwks_file or user_header"

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Settings that are right for some sites only."""
        if self.user_header and not self.proxy_credential:
            yield (
                "user_header",
                "without proxy_credential anyone who reaches the aggregator from an address in "
                "trusted_proxies can claim to be any user",
            )


@dataclass(frozen=True, slots=True)
class PrincipalTable:
    """A `[[principal]]`: the role of a user for jobs; without one, a user reads own jobs.

    `projects`: of a manager. `scopes`: of the role api, which is for names of the credentials file.
    """

    name: str = field(metadata=checked(non_empty()))
    role: str = field(metadata=checked(one_of(ROLES)))
    projects: tuple[str, ...] = field(default=(), metadata=checked(distinct(), each(non_empty())))
    scopes: tuple[str, ...] = field(default=(), metadata=checked(distinct(), each(_scope)))

    def problems(self) -> Iterator[tuple[str, str]]:
        """Settings that have no meaning for the role."""
        if self.projects and self.role != "manager":
            yield "projects", "are for the role manager"
        if self.scopes and self.role != "api":
            yield "scopes", "are for the role api"
