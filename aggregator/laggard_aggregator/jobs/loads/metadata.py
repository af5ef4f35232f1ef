"""Load of the metadata servers by class of client: users, projects or applications and their rates."""

from dataclasses import dataclass
from typing import Final

from laggard_aggregator.jobs.access.filter import GroupBy
from laggard_aggregator.jobs.access.principals import Principal
from laggard_aggregator.jobs.access.queries import JobQueries

LONGEST_SECONDS: Final = 31 * 86_400.0
"""Jobs that began earlier than this before a time are not looked for."""


@dataclass(frozen=True, slots=True)
class MetadataLoad:
    """Metadata operations of a class of clients. `operations`: the share of its jobs' operations by time."""

    name: str
    jobs: int
    operations: float
    operations_per_second: float


def metadata_load(
    queries: JobQueries,
    principal: Principal,
    after: float,
    before: float,
    group: GroupBy = GroupBy.APPLICATION,
) -> list[MetadataLoad]:
    """Classes by their operations within [after, before), largest first.

    Jobs that the principal may not see count nowhere; nor do jobs that run on, as they are not joined yet. A
    job's operations count as if spread evenly over its time.
    """
    seconds = before - after
    if seconds <= 0:
        return []
    rows = queries.metadata_operations(principal, group, after, before, after - LONGEST_SECONDS)
    return [
        MetadataLoad(row["name"], row["jobs"], row["operations"], row["operations"] / seconds) for row in rows
    ]
