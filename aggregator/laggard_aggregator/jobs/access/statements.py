"""Statements about jobs in the hot index: their columns, and those on jobs beside a job."""

from typing import Any, Final

from laggard_aggregator.jobs.access.principals import Principal
from laggard_aggregator.jobs.index.schema import JOB_COLUMNS, SUMMARY_COLUMNS

COLUMNS: Final = ", ".join(
    ["j.job_key", "j.id", "j.at", "j.revision_at", "j.day", "s.rate", "s.ratio", "v.verdict", "v.slowdown"]
    + ["v.sentence"]
    + [f'j."{name}"' for name in JOB_COLUMNS]
    + [f's."{name}" as "s_{name}"' for name in SUMMARY_COLUMNS]
)
WITH_RESULTS: Final = "left join summaries s on s.id = j.id left join verdicts v on v.id = j.id"
FROM_JOBS: Final = f"jobs j {WITH_RESULTS}"

_DURING: Final = """
during (id) as materialized (
    select j.id from spans p cross join jobs j
    where p.span <= :last_span and j.span = p.span and j.at > :start - p.seconds - 1 and j.at < :end
    and coalesce(j.end, 9e15) > :start and j.id <> :id),
sharing (id) as (
    select d.id from during d where exists (
        select 1 from uses v where v.job = d.id
        and v.component in (select component from uses where job = :id)))
"""
"""Jobs that ran, by classes of their length, and of these the ones that used a component of job `id`."""

NEIGHBOURS: Final = f"""
with {_DURING},
beside (id) as (
    select id from sharing
    union
    select c.job from members a join boxes b on b.low <= a.high and b.high >= a.low
    and b.start <= :to and b.end >= :from join members c on c.id = b.id join jobs o on o.id = c.job
    where a.job = :id and (a.observed or a.revision_at = :revision_at) and c.job <> :id
    and (c.observed or c.revision_at = o.revision_at)
    and a.start < coalesce(c.end, 9e15) and c.start < coalesce(a.end, 9e15)),
most (id) as materialized (
    select b.id from beside b left join summaries l indexed by summaries_load on l.id = b.id
    order by l.mdops desc nulls last, l.rate desc nulls last, b.id limit :most)
select {COLUMNS} from {FROM_JOBS}
where j.id in (select id from most) and j.start < :end and coalesce(j.end, 9e15) > :start
order by s.mdops desc nulls last, s.rate desc nulls last, j.id
"""  # noqa: S608 - texts of this module

SHARING: Final = f"""
with {_DURING},
most (id) as materialized (
    select d.id from sharing d left join summaries l indexed by summaries_load on l.id = d.id
    order by l.{{load}} desc nulls last, d.id limit :most)
select {COLUMNS} from {FROM_JOBS}
where j.id in (select id from most) and j.start < :end and j.end > :start
"""  # noqa: S608 - texts of this module

HAD_JOB: Final = """
select 1 from nodes n join boxes b on b.low <= n.number and b.high >= n.number
and b.start <= :to and b.end >= :from join members m on m.id = b.id join jobs j on j.id = m.job
where n.name in (:node, :short) and (m.observed or m.revision_at = j.revision_at)
and m.start < :end and coalesce(m.end, j.end, 9e15) > :start limit 1
"""

SLOW_BESIDE: Final = f"""
with joined (id, at, start, end) as materialized (
    select o.id, t.revision_at, o.start, coalesce(o.end, 9e15)
    from summaries t indexed by summaries_revision join jobs o on o.id = t.id
    where t.revision_at > :since and o.start is not null)
select {COLUMNS}, s.revision_at as joined_at from {FROM_JOBS}
where j.id in (select id from verdicts where verdict = 'slow' and verdict <> 'as usual' and at > :at)
and exists (
    select 1 from joined o where o.at > v.revision_at and o.id <> j.id and o.start < j.end and o.end > j.start
    and exists (
        select 1 from uses a join uses b on b.job = o.id and b.component = a.component where a.job = j.id))
order by v.revision_at, j.id limit :most
"""  # noqa: S608 - texts of this module
"""Slow jobs whose neighbours were joined after they had been judged."""

SLOW_BEFORE_ROLLUPS: Final = f"""
select {COLUMNS}, s.revision_at as joined_at from {FROM_JOBS}
where j.id in (select id from verdicts where verdict = 'slow' and verdict <> 'as usual' and at > :at)
and j.end >= rolled_until(v.revision_at / 1e9) and j.end < rolled_until(:now)
order by v.revision_at, j.id limit :most
"""  # noqa: S608 - texts of this module
"""Slow jobs that were judged before the hour of their end was rolled up."""

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
    return [f"+{condition}" if condition.startswith(plus) else condition for condition in conditions]


def access_of(principal: Principal) -> tuple[str, dict[str, Any]]:
    """Condition on `j` that holds of the jobs that a principal may see."""
    granted = grants(principal)
    values = {name: value for _, more in granted for name, value in more.items()}
    return "(" + (" or ".join(condition for condition, _ in granted) or "0") + ")", values


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
