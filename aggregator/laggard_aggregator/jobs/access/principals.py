"""Principals: who asks, and which jobs they may see.

The default is to see nothing. A user sees own jobs, a manager also those of the projects (Slurm's accounts)
that the identity names, support and admin see all. A token for programs sees the jobs of its scopes.
"""

from dataclasses import dataclass
from enum import StrEnum

READ_ALL = "jobs:read:all"
READ_PROJECT = "jobs:read:project="
READ_USER = "jobs:read:user="


class Role(StrEnum):
    """Roles of principals."""

    USER = "user"
    MANAGER = "manager"
    SUPPORT = "support"
    ADMIN = "admin"
    API = "api"


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated asker. `scopes` count for the role `api` alone, `projects` for managers."""

    name: str
    role: Role
    projects: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()

    @property
    def sees_all(self) -> bool:
        """Whether every job may be seen, and neighbours with their identity."""
        return self.role in (Role.SUPPORT, Role.ADMIN) or (self.role is Role.API and READ_ALL in self.scopes)

    @property
    def sees_site(self) -> bool:
        """Whether the load of components may be seen, which tells when somebody's jobs ran."""
        return self.role in (Role.SUPPORT, Role.ADMIN)

    @property
    def users(self) -> frozenset[str]:
        """Users whose jobs may be seen, whatever their project."""
        if self.role is Role.API:
            return _after(READ_USER, self.scopes)
        own = self.role in (Role.USER, Role.MANAGER) and self.name
        return frozenset({self.name}) if own else frozenset()

    @property
    def accounts(self) -> frozenset[str]:
        """Accounts all of whose jobs may be seen."""
        if self.role is Role.API:
            return _after(READ_PROJECT, self.scopes)
        return self.projects - {""} if self.role is Role.MANAGER else frozenset()

    def may_see(self, user: str, account: str) -> bool:
        """Whether a job of `user` in `account` may be seen; an empty name never matches."""
        return self.sees_all or user in self.users or account in self.accounts


NOBODY = Principal("", Role.USER)
"""Sees nothing."""


def _after(prefix: str, scopes: frozenset[str]) -> frozenset[str]:
    """Names that follow `prefix` in `scopes`, but for empty ones."""
    return frozenset(scope.removeprefix(prefix) for scope in scopes if scope.startswith(prefix)) - {""}
