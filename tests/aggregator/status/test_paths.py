"""Signs and paths of made-up judgements."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from laggard_aggregator.groups.membership import PeerGroup
from laggard_aggregator.groups.topology import Branch, Topology
from laggard_aggregator.status.paths import located
from laggard_aggregator.status.straggler_list import standings
from tests.support.builders import live_status

SERVERS = tuple(f"oss-{n}" for n in range(5))


def causes(
    *sources: tuple[str, str, tuple[str, ...], float], topology: Topology, anomalous: Sequence[str] = ()
) -> set[tuple[str, str]]:
    """The causes where the third component of each source and metric is slower by a factor.

    `anomalous`: the sources in which it is a straggler, all by default.
    """
    judgements, groups = [], {}
    for source, metric, components, factor in sources:
        slow = [n == 2 for n in range(5)]
        severity = [factor if each else 1.0 for each in slow]
        found = [each and source in (anomalous or (source,)) for each in slow]
        judged = live_status.judgement(source, components, [6 * each for each in found], severity, found)
        judgements.append(replace(judged, metric=metric))
        groups[source] = PeerGroup(source, source, "", (metric,), live_status.group(source, 5).detect)
    rows = standings(judgements, {}, str, lambda *_: None)
    where = located(rows, judgements, groups, topology, {})
    return {(each.level, each.component) for each in where.values()}


BRICKS = ("gluster_brick", "read_latency", tuple(f"{server}//srv/b" for server in SERVERS), 9.0)
ADDRESSES = ("tcp_destination", "retransmits", tuple(f"*/10.0.0.{n}" for n in range(5)), 5.0)
DECLARED = Topology([Branch(r"[*]/10\.0\.0\.(\d)", {"node": r"oss-\1"})])


def test_a_declared_address_is_its_server() -> None:
    assert causes(BRICKS, ADDRESSES, topology=DECLARED) == {("server", "oss-2")}
    assert causes(ADDRESSES, topology=DECLARED) == {("network", "oss-2")}
    assert causes(BRICKS, ADDRESSES, topology=Topology()) == {("server", "oss-2"), ("network", "10.0.0.2")}


def test_a_disk_behind_a_brick_is_judged_by_its_factor() -> None:
    disks = ("diskstats", "await", tuple(f"{server}/sda" for server in SERVERS))
    assert causes((*disks, 8.0), BRICKS, topology=Topology()) == {("lun", "oss-2/sda")}
    assert causes((*disks, 1.6), BRICKS, topology=Topology()) == {("server", "oss-2")}


@pytest.mark.parametrize("metric", ["tps", "util", "avgqu_sz"])
def test_only_times_clear_what_is_before_them(metric: str) -> None:
    """A disk with three times the load of its peers has no long await."""
    loads = ("diskstats", metric, tuple(f"{server}/sda" for server in SERVERS), 9.0)
    found = causes(BRICKS, loads, topology=Topology(), anomalous=("gluster_brick",))
    assert found == {("server", "oss-2")}


@pytest.mark.parametrize(("source", "metric"), [("diskstats", "throughput"), ("unheard-of", "await")])
def test_metrics_without_a_worse_side_and_unknown_sources_are_not_located(source: str, metric: str) -> None:
    assert causes((source, metric, SERVERS, 9.0), topology=Topology()) == set()
