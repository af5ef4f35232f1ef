"""Intervals in pure SQL: the cross-check of the kernel of critical paths."""

from laggard_aggregator.jobs.darshan.job_list import intervals_sql


def busy_sql(direction: str) -> str:
    """Time with activity of each job in pure SQL: the part of each interval beyond the ends before it."""
    return f"""
    with intervals as ({intervals_sql(direction)}), reached as (
      select job_id, start_us, end_us, max(end_us) over (
        partition by job_id
        order by start_us nulls last, end_us nulls last, file_id nulls last, rank nulls last, log nulls last
        rows between unbounded preceding and 1 preceding) as reach
      from intervals
    )
    select job_id, sum(greatest(end_us - greatest(start_us, coalesce(reach, start_us)), 0)) as busy_us
    from reached group by job_id order by job_id nulls last
    """


def sole_sql(direction: str) -> str:
    """Time in which each record alone is active: running sums of +1 and -1, and of row numbers, at its ends."""
    return f"""
    with numbered as (
      select *, row_number() over (order by job_id, log, file_id, rank) as place from ({intervals_sql(direction)}) as intervals
    ), events as (
      select job_id, start_us as at_us, 1 as depth, place as weight from numbered
      union all select job_id, end_us, -1, -place from numbered
    ), points as (
      select job_id, at_us, sum(depth) as depth, sum(weight) as weight from events group by job_id, at_us
    ), running as (
      select job_id, at_us, lead(at_us) over by_time as until_us, sum(depth) over so_far as depth, sum(weight) over so_far as weight
      from points
      window by_time as (partition by job_id order by at_us nulls last),
             so_far as (partition by job_id order by at_us nulls last
                        rows between unbounded preceding and current row)
    )
    select n.job_id, n.file_id, n.rank, sum(r.until_us - r.at_us) as sole_us
    from running r join numbered n on n.place = r.weight and n.job_id = r.job_id
    where r.depth = 1 group by n.job_id, n.file_id, n.rank
    order by n.job_id nulls last, n.file_id nulls last, n.rank nulls last
    """
