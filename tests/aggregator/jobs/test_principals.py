"""Each role against each job: own, of a project, another's, without a name."""

import pytest

from laggard_aggregator.jobs.access.principals import NOBODY, Principal, Role

PROJECTS = frozenset({"climate", ""})
JOBS = {
    "own": ("ada", "astro"),
    "project": ("bob", "climate"),
    "other": ("bob", "astro"),
    "nameless": ("", ""),
}


@pytest.mark.parametrize(
    ("principal", "seen"),
    [
        (Principal("ada", Role.USER, PROJECTS, frozenset({"jobs:read:all"})), {"own"}),
        (Principal("ada", Role.MANAGER, PROJECTS), {"own", "project"}),
        (Principal("ada", Role.SUPPORT), set(JOBS)),
        (Principal("ada", Role.ADMIN), set(JOBS)),
        (Principal("ada", Role.API, PROJECTS), set()),
        (Principal("ada", Role.API, scopes=frozenset({"jobs:read:all"})), set(JOBS)),
        (Principal("x", Role.API, scopes=frozenset({"jobs:read:project=climate"})), {"project"}),
        (Principal("x", Role.API, scopes=frozenset({"jobs:read:user=bob"})), {"project", "other"}),
        (Principal("x", Role.API, scopes=frozenset({"jobs:read:user=", "jobs:read:project="})), set()),
        (Principal("x", Role.API, scopes=frozenset({"jobs:read:ALL", "jobs:read", "jobs:read:all "})), set()),
        (Principal("", Role.MANAGER, PROJECTS), {"project"}),
        (NOBODY, set()),
    ],
)
def test_a_principal_sees_no_more_than_the_role_allows(principal: Principal, seen: set[str]) -> None:
    assert {name for name, job in JOBS.items() if principal.may_see(*job)} == seen
