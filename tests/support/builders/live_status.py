"""A made-up site: what a View answers, in plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from laggard_aggregator.alarms.alarms import Alarm, Key
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.alarms.overrides import Decision, silencing
from laggard_aggregator.detect.interface import Verdicts, not_judged
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.engine.node_evidence import NodeSign
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.ingest.node_view import CollectorsView, CollectorView, NodeState, NodeView, RoleView
from laggard_aggregator.ingest.prometheus_input import ScrapeView
from laggard_aggregator.log.journal import Durability
from laggard_aggregator.status.background import BackgroundWork, JobPolls
from laggard_aggregator.status.view import ChannelView, Counters, GroupView, Status
from laggard_aggregator.status.window_history import WindowHistory

NOW = 1_760_000_500.0
NAN = float("nan")


@dataclass
class MadeView(Status):
    """A Status whose answers are its fields."""

    site: str = "site"
    version: str = "0.1.0"
    started_at: float = 1_760_000_000.0
    now: float = NOW
    unready: str = ""
    overdue_seconds: float = 0.0
    groups_: tuple[GroupView, ...] = ()
    judgements_: tuple[Judgement, ...] = ()
    alarms_: dict[Key, Alarm] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    nodes_: tuple[NodeView, ...] = ()
    roles_: tuple[RoleView, ...] = ()
    counters_: Counters = field(default_factory=Counters)
    durability_: Durability | None = None
    decisions_: tuple[Decision, ...] = ()
    topology_: Topology = field(default_factory=Topology)
    hosts_: dict[str, str] = field(default_factory=dict)
    signs: dict[str, tuple[NodeSign, ...]] = field(default_factory=dict)
    history: WindowHistory = field(default_factory=WindowHistory)
    revision: int = 1

    async def changed(self, revision: int) -> int | None:
        return self.revision if revision != self.revision else None

    def close(self) -> None:
        self.revision += 1

    def groups(self) -> tuple[GroupView, ...]:
        return self.groups_

    def compared(self, group: str) -> tuple[str, ...]:
        found = (judged.components for judged in self.judgements_ if judged.group == group)
        return next(found, ())

    def judgements(self) -> tuple[Judgement, ...]:
        return self.judgements_

    def alarms(self) -> Mapping[Key, Alarm]:
        return self.alarms_

    def worse(self, alarm: Alarm) -> int:
        return 1

    def shown(self, component: str) -> str:
        return self.names.get(component, component)

    def node_counts(self) -> Mapping[tuple[str, NodeState], int]:
        counts: dict[tuple[str, NodeState], int] = {}
        for node in self.nodes_:
            counts[node.role, node.state] = counts.get((node.role, node.state), 0) + 1
        return counts

    def roles(self) -> tuple[RoleView, ...]:
        return self.roles_

    def nodes(self) -> tuple[NodeView, ...]:
        return self.nodes_

    def node(self, name: str) -> NodeView | None:
        return next((node for node in self.nodes_ if node.node == name), None)

    def unhealthy_nodes(self) -> tuple[NodeView, ...]:
        return tuple(node for node in self.nodes_ if not node.healthy)

    def decisions(self) -> tuple[Decision, ...]:
        return self.decisions_

    def silenced(self, *names: str) -> Decision | None:
        return next(silencing(self.decisions_, *names), None)

    def durability(self) -> Durability | None:
        return self.durability_

    def topology(self) -> Topology:
        return self.topology_

    def hosts(self) -> Mapping[str, str]:
        return self.hosts_

    def node_signs(self, node: str) -> tuple[NodeSign, ...]:
        return self.signs.get(node, ())

    def counters(self) -> Counters:
        return self.counters_


def group(name: str, live: int, silent: int = 0) -> GroupView:
    return GroupView(
        name=name,
        source="diskstats",
        role="storage",
        metrics=("await",),
        live=live,
        silent=silent,
        window_seconds=60.0,
        detect=DetectSettings(interval_seconds=1.0),
    )


def judgement(
    group_name: str,
    components: Sequence[str],
    persistence: Sequence[int],
    severity: Sequence[float],
    straggler: Sequence[bool],
) -> Judgement:
    """A window from 1760000400 to 1760000460 in which the peers' await was 2 ms."""
    severities = np.array(severity)
    return Judgement(
        group=group_name,
        metric="await",
        components=tuple(components),
        start=NOW - 100,
        end=NOW - 40,
        verdicts=Verdicts(
            judged=~np.isnan(severities),
            anomalous=severities > 1.5,
            score=(severities - 1) * 10,
            severity=severities,
            observed=severities * 2,
            reference=np.full(len(components), 2.0),
        ),
        persistence=np.array(persistence, dtype=np.int64),
        straggler=np.array(straggler),
        since=np.where(np.array(persistence) > 0, NOW - 300, 0.0),
        levels=("component",) * len(components),
        transitions=(),
    )


def unjudged(group_name: str, components: Sequence[str], note: str) -> Judgement:
    n = len(components)
    return Judgement(
        group=group_name,
        metric="await",
        components=tuple(components),
        start=NOW - 100,
        end=NOW - 40,
        verdicts=not_judged(n, note),
        persistence=np.zeros(n, dtype=np.int64),
        straggler=np.zeros(n, dtype=np.bool_),
        since=np.zeros(n),
        levels=("component",) * n,
        transitions=(),
    )


def alarm(group_name: str, component: str, severity: float = 4.0) -> Alarm:
    return Alarm(
        group=group_name,
        component=component,
        metric="await",
        level="component",
        since=NOW - 300,
        raised_at=NOW - 120,
        updated_at=NOW - 40,
        score=(severity - 1) * 10,
        severity=severity,
        worst_severity=severity + 2,
        observed=severity * 2,
        reference=2.0,
    )


def site() -> MadeView:
    """An alarm, a straggler on its way out, an alarm of a component gone silent, a group too small."""
    luns = ("oss-1/wwn-1", "oss-1/wwn-2", "oss-2/wwn-3", "oss-2/wwn-4", "oss-3/wwn-5")
    return MadeView(
        groups_=(group("luns", 5, 1), group("storage/net/10 Gb", 2)),
        judgements_=(
            judgement(
                "luns",
                luns,
                persistence=(0, 6, 1, 0, 2),
                severity=(1.0, 4.0, 1.02, 0.9, NAN),
                straggler=(False, True, False, False, True),
            ),
            unjudged("storage/net/10 Gb", ("oss-1/eth0", "oss-2/eth0"), "too few members"),
        ),
        alarms_={
            key: value
            for value in (alarm("luns", "oss-1/wwn-2"), alarm("luns", 'oss-9/"odd\\name'))
            for key in (value.key,)
        },
        names={"oss-1/wwn-2": "oss-1/sdb", "oss-2/wwn-3": "oss-2/sdc"},
        nodes_=(
            NodeView("oss-1", "storage", "up", True, NOW - 1, 0.001),
            NodeView(
                "oss-2",
                "storage",
                "up",
                False,
                NOW - 1.5,
                -0.25,
                version="0.1.0",
                collectors={
                    "net": CollectorView(False, 0.0004, "no /proc/net/dev"),
                    "diskstats": CollectorView(True, 0.001, ""),
                },
                spool_bytes=4096,
                dropped_samples=7,
                missed_ticks=1,
                cpu_seconds=1.25,
                resident_bytes=30_000_000,
            ),
            NodeView("oss-9", "storage", "silent", False, NAN, NAN),
            NodeView("mds-1", "metadata", "stopped", False, NOW - 400, 0.0),
        ),
        roles_=(
            RoleView(
                role="storage",
                spool_bytes=4096,
                dropped_samples=7,
                missed_ticks=1,
                cpu_seconds=1.25,
                spool={0.5: 0.0, 0.99: 4096.0, 1.0: 4096.0},
                resident_bytes={0.5: 30e6, 0.99: 30e6, 1.0: 30e6},
                clock_offset_seconds={0.5: 0.001, 0.99: 0.25, 1.0: 0.25},
                collectors={"net": CollectorsView(1, {}), "diskstats": CollectorsView(0, {0.5: 0.001})},
            ),
        ),
        counters_=Counters(
            messages=1000,
            samples=5000,
            gaps=1,
            duplicates=2,
            two_streams=1,
            late_samples=3,
            future_samples=4,
            resets=5,
            windows=6,
            window_lag_seconds=0.125,
            window_lag_most_seconds=1.5,
            queue_dropped=7,
            queue_bytes=7168,
            flooding=("cn-7", 5000.0),
            archive_dropped=8,
            archive_returned=9,
            clock_steps=3,
            clock_difference_seconds=0.25,
            archive_up=True,
            archive_lag_seconds=12.0,
            archive_damaged=2,
            archive_refused={"oss-7": 11},
            documents=13,
            refused_documents=1,
            background=BackgroundWork(
                rolled_hours=3,
                rolled_rows=120,
                lag_seconds=45.5,
                joined_jobs=4,
                judged_jobs=3,
                waiting_jobs=2,
                failures=1,
            ),
            job_polls=JobPolls(revisions=70, left_out=2, succeeded_at=1.7e9, failures=1),
            scrapes={"main": ScrapeView(polled=True, newest=1.7e9, polls=30, failures=3, readings=600)},
            held=9,
            wire_errors={"msgpack": 10, "version": 1},
            refused={"too many components": 12},
            notifications={
                "mail": ChannelView({"sent": 16, "retried": 17, "refused": 18, "expired": 19}, 20),
                "webhook": ChannelView({"sent": 21}, 22),
            },
        ),
        durability_=Durability(
            whole=True,
            journal_bytes=13,
            snapshot_bytes=14,
            snapshot_at=NOW - 30,
            snapshot_seconds=0.25,
            failures=15,
            damaged_files=24,
            lost_batches=25,
        ),
    )
