"""Statements about jobs in the hot index: their columns, and those on jobs beside a job."""

from typing import Final

from laggard_aggregator.jobs.index_schema import JOB_COLUMNS, SUMMARY_COLUMNS

COLUMNS: Final = ", ".join(
    ["k.job_key", "j.id", "j.at", "j.revision_at", "j.day", "s.rate", "s.ratio", "v.verdict", "v.slowdown"]
    + ["v.sentence"]
    + [f'j."{name}"' for name in JOB_COLUMNS]
    + [f's."{name}" as "s_{name}"' for name in SUMMARY_COLUMNS]
)
FROM_JOBS: Final = (
    "jobs j join keys k on k.id = j.id left join summaries s on s.id = j.id"
    " left join verdicts v on v.id = j.id"
)

NEIGHBOURS: Final = f"""
with beside (id) as materialized (
    select v.job from uses u join uses v on v.component = u.component
    where u.job = :id and v.job <> :id and v.at >= :oldest and v.at < :end
    and coalesce(v.until, 9e15) > :start
    union
    select c.job from members a join boxes b on b.low <= a.high and b.high >= a.low
    and b.start <= :to and b.end >= :from join members c on c.id = b.id join jobs o on o.id = c.job
    where a.job = :id and (a.observed or a.revision_at = :revision_at) and c.job <> :id
    and (c.observed or c.revision_at = o.revision_at)
    and a.start < coalesce(c.end, 9e15) and c.start < coalesce(a.end, 9e15))
select {COLUMNS} from beside d join jobs j on j.id = d.id join keys k on k.id = j.id
left join summaries s on s.id = j.id
left join verdicts v on v.id = j.id
where j.start < :end and coalesce(j.end, 9e15) > :start
order by s.mdops desc nulls last, s.rate desc nulls last, j.id limit :most
"""  # noqa: S608 - texts of this module

SHARING: Final = f"""
with beside (id) as materialized (
    select distinct v.job from uses u join uses v on v.component = u.component
    where u.job = :id and v.job <> :id and v.at >= :oldest and v.at < :end
    and v.until > :start)
select {COLUMNS} from beside d join jobs j on j.id = d.id join keys k on k.id = j.id
left join summaries s on s.id = j.id
left join verdicts v on v.id = j.id
where j.start < :end and j.end > :start
"""  # noqa: S608 - texts of this module
