"""Conditions of access and of order in the statements about jobs."""

from typing import Any, Final

from laggard_aggregator.jobs.principals import Principal

_EQUAL: Final = {name: f"j.{name} =" for name in ("user", "account", "application", "state")}
_ORDERED: Final = (
    ("user", "account"),
    ("user", "application"),
    ("user",),
    ("account", "application"),
    ("account",),
    ("application",),
    ("state",),
)
"""Columns before the time in the indexes of jobs, the best first."""


def in_order(conditions: list[str], granted: set[str]) -> list[str]:
    """The conditions, so that an index with the order of time answers them, and none of others' jobs.

    A unary plus keeps a condition from the choice of an index. `granted`: `user` or `account`.
    """
    equal = granted | {name for name, text in _EQUAL.items() if any(c.startswith(text) for c in conditions)}
    chosen = next((names for names in _ORDERED if set(names) <= equal), ())
    plus = tuple(text for name, text in _EQUAL.items() if name not in chosen)
    return [f"+{each}" if each.startswith(plus) else each for each in conditions]


def access_of(principal: Principal) -> tuple[str, dict[str, Any]]:
    """Condition on `j` that holds of the jobs that a principal may see."""
    found = grants(principal)
    values = {name: value for _, more in found for name, value in more.items()}
    return "(" + (" or ".join(condition for condition, _ in found) or "0") + ")", values


def grants(principal: Principal) -> list[tuple[str, dict[str, Any]]]:
    """Conditions on `j`; a job that one of them holds of may be seen."""
    if principal.sees_all:
        return [("1", {})]
    users = [(f"j.user = :user{at}", {f"user{at}": name}) for at, name in enumerate(sorted(principal.users))]
    return users + [
        (f"j.account = :account{at}", {f"account{at}": name})
        for at, name in enumerate(sorted(principal.accounts))
    ]


def excludes(granted: dict[str, Any], values: dict[str, Any]) -> bool:
    """Whether a list of another user's or project's jobs is asked for than a grant is about."""
    for name, value in granted.items():
        wanted = values.get("user" if name.startswith("user") else "project", value)
        if wanted != value:
            return True
    return False


def owner_of(granted: dict[str, Any], values: dict[str, Any]) -> str:
    """Condition on `x` with an owner's number that each job of a list meets; empty where there is none."""
    known = (*granted, *(name for name in ("user", "project") if name in values))
    if not known:
        return ""
    column = "user_id" if known[0].startswith("user") else "account_id"
    return f"x.{column} = (select id from owners where name = :{known[0]})"  # noqa: S608 - names of this module
