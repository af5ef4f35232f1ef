"""Load of the metadata servers: by job and their owners, by class of node, and by metadata target."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow.compute as pc

from laggard_aggregator.archive.table import Table, Within, day_of
from laggard_aggregator.jobs.access.principals import Principal
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.join.volumes import CLIENT, SOURCES
from laggard_aggregator.jobs.loads.kinds import FORWARDERS, KINDS
from laggard_aggregator.jobs.loads.roster import RosterNode, roster
from laggard_aggregator.jobs.rollups.readings import SECOND_NS
from laggard_aggregator.jobs.rollups.series60 import KIND, sum_column

LONGEST_SECONDS: Final = 31 * 86_400.0
"""Jobs that began earlier than this before a time are not looked for."""
_OF_TARGETS: Final = "lustre_mdt"
_NUMBER: Final = re.compile(r"[0-9]+")


class MetadataBy(StrEnum):
    """Classes of the table. Those of nodes and targets are of the whole site."""

    APPLICATION = "application"
    USER = "user"
    PROJECT = "project"
    JOB = "job"
    NODES = "nodes"
    TARGET = "target"


OF_SITE: Final = frozenset({MetadataBy.NODES, MetadataBy.TARGET})
_COLUMNS: Final = {
    MetadataBy.APPLICATION: "application",
    MetadataBy.USER: "user",
    MetadataBy.PROJECT: "account",
    MetadataBy.JOB: "job_key",
}


@dataclass(frozen=True, slots=True)
class MetadataLoad:
    """Metadata operations of a class of clients, or of a target.

    `count`: its jobs, or nodes. `busiest`: the node with most operations. `is_outside`: whether they are of
    no job. `is_passed_on`: whether forwarders pass them on for nodes that count them, too.
    """

    name: str
    count: int
    operations: float
    operations_per_second: float
    busiest: str = ""
    is_outside: bool = False
    is_passed_on: bool = False


@dataclass(frozen=True, slots=True)
class SiteMetadata:
    """Operations of a time by node and by metadata target, and the nodes."""

    by_node: Mapping[str, float]
    by_target: Mapping[str, float]
    nodes: Mapping[str, RosterNode]

    @property
    def total(self) -> float:
        """Operations of all clients; of the targets where no client counts.

        What forwarders do for compute nodes that count themselves is theirs already.
        """
        own = sum(operations for node, operations in self.by_node.items() if not self.is_passed_on(node))
        return own or sum(self.by_target.values())

    def is_passed_on(self, node: str) -> bool:
        """Whether the operations of a node are those of compute nodes, which count them themselves."""
        return self._is_forwarder(node) and any(
            "compute" in self.nodes[other].roles
            for other, operations in self.by_node.items()
            if operations and other in self.nodes
        )

    def _is_forwarder(self, node: str) -> bool:
        return node in self.nodes and not self.nodes[node].roles.isdisjoint(KINDS[FORWARDERS].roles)


def metadata_load(
    queries: JobQueries,
    principal: Principal,
    after: float,
    before: float,
    group: MetadataBy = MetadataBy.APPLICATION,
    *,
    site: SiteMetadata | None = None,
) -> list[MetadataLoad]:
    """Classes by their operations within [after, before), largest first.

    Jobs that the principal may not see count nowhere; nor do jobs that run on, as they are not joined yet. A
    job's operations count as if spread evenly over its time. With `site`, whose operations the principal may
    see, a row has those outside of these jobs.
    """
    seconds = before - after
    if seconds <= 0:
        return []
    if site is not None and group in OF_SITE:
        return _of_site(site, group, seconds)
    since = after - LONGEST_SECONDS
    rows = queries.metadata_operations(principal, _COLUMNS[group], after, before, since)
    loads = [
        MetadataLoad(row["name"], row["jobs"], row["operations"], row["operations"] / seconds) for row in rows
    ]
    outside = 0.0 if site is None else site.total - sum(load.operations for load in loads)
    if outside > 0:
        loads.append(MetadataLoad("", 0, outside, outside / seconds, is_outside=True))
    return sorted(loads, key=lambda load: -load.operations)


def site_metadata(directory: Path, after: float, before: float) -> SiteMetadata:
    """Operations within [after, before) by the minute's rollups. Raises ArchiveError."""
    by_node: Counter[str] = Counter()
    sources = [name for name, fields in SOURCES.items() if fields.layer == CLIENT]
    for source in sources:
        by_node.update(_sums(directory, source, "node", SOURCES[source].metadata, after=after, before=before))
    fields = SOURCES["lustre_job_mdt"].metadata
    by_target = _sums(directory, _OF_TARGETS, "name", fields, after=after, before=before)
    return SiteMetadata(by_node, by_target, roster(directory, sources, after, before))


def _sums(
    directory: Path, source: str, key: str, fields: Sequence[str], *, after: float, before: float
) -> Counter[str]:
    """Sums of some fields of a source by `key`."""
    minutes = Within("minute", round(after * SECOND_NS), round(before * SECOND_NS))
    columns = [sum_column(name) for name in fields]
    days = {"first_day": day_of(after), "last_day": day_of(before)}
    sums: Counter[str] = Counter()
    for table in Table(directory, KIND, source).scan([key, "minute", *columns], minutes, **days):
        named = table[key].unify_dictionaries().combine_chunks()
        amounts = np.zeros(table.num_rows)
        for column in columns:
            if column in table.column_names:
                amounts += pc.fill_null(table[column], 0).to_numpy()
        of_name = np.bincount(named.indices.to_numpy(), amounts, len(named.dictionary))
        for name, amount in zip(named.dictionary.to_pylist(), of_name.tolist(), strict=True):
            sums[name] += amount
    return sums


def _of_site(site: SiteMetadata, group: MetadataBy, seconds: float) -> list[MetadataLoad]:
    if group == MetadataBy.TARGET:
        loads = [MetadataLoad(name, 1, count, count / seconds) for name, count in site.by_target.items()]
    else:
        classes: dict[str, dict[str, float]] = defaultdict(dict)
        for node, operations in site.by_node.items():
            roles = site.nodes[node].roles if node in site.nodes else ()
            classes[f"{_NUMBER.sub('*', node)} ({', '.join(sorted(roles)) or 'role unknown'})"][node] = (
                operations
            )
        loads = [
            MetadataLoad(
                name,
                len(nodes),
                sum(nodes.values()),
                sum(nodes.values()) / seconds,
                max(nodes, key=lambda node: nodes[node]),
                is_passed_on=all(map(site.is_passed_on, nodes)),
            )
            for name, nodes in classes.items()
        ]
    return sorted(loads, key=lambda load: (-load.operations, load.name))
