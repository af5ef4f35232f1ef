"""What the metrics ask for is what the agent's collectors call it."""

import shutil
from collections.abc import Collection
from pathlib import Path

import pytest

from laggard_agent.collectors.diskstats.collector import FIELDS as DISK_FIELDS
from laggard_agent.collectors.fnprofile.functions import FIELDS as FNPROFILE_FIELDS
from laggard_agent.collectors.fntrace.collector import FIELDS as FNTRACE_FIELDS
from laggard_agent.collectors.mountstats.collector import Mountstats, MountstatsSettings
from laggard_agent.collectors.net.destinations import DESTINATION_FIELDS
from laggard_agent.collectors.net.parse import INTERFACE_FIELDS, TCP_FIELDS
from laggard_aggregator.metrics.registry import FUNCTIONS, SOURCES
from laggard_aggregator.metrics.sums import JoinedMetrics
from laggard_common.wire.schema import Field
from tests.support.builders.gluster import BRICK, CLIENT, Folder
from tests.support.builders.lustre import FIXTURES, Watched, trees
from tests.support.sampled import Sampled, surroundings


def complete(source: str, fields: Collection[Field]) -> set[str]:
    """The metrics of which all counters are among `fields`."""
    names = {field.name for field in fields}
    return {name for name, metric in SOURCES[source].metrics.items() if names.issuperset(metric.needs)}


def test_tcp() -> None:
    net = (*INTERFACE_FIELDS, *TCP_FIELDS)
    assert complete("tcp", net) == complete("tcp_destination", DESTINATION_FIELDS) == {"retransmits"}
    assert complete("server", (*net, *DISK_FIELDS)) == set(SOURCES["server"].metrics)


def test_functions() -> None:
    for source, sent in {"fnprofile": FNPROFILE_FIELDS, "fntrace": FNTRACE_FIELDS}.items():
        known = FUNCTIONS[source]
        counted = {field.name: field for field in sent}
        assert set(known.counters(list(known.metrics))) <= set(counted)
        assert counted[known.seconds.counter].unit == "ns"


@pytest.mark.parametrize("known", [each for each in SOURCES.values() if isinstance(each, JoinedMetrics)])
def test_parts_are_sent_by_the_source_that_they_are_said_to_be_of(known: JoinedMetrics) -> None:
    sent = {
        "net": INTERFACE_FIELDS,
        "tcp": TCP_FIELDS,
        "diskstats": DISK_FIELDS,
        "tcp_destination": DESTINATION_FIELDS,
    }
    lustre = Watched(trees(FIXTURES / "client-2.16")).sample().readings["lustre_osc"]
    sent["lustre_osc"] = tuple(lustre.fields)
    for source, counters in known.parts.items():
        names = {field.name for field in sent[source]}
        assert set(counters) - set(known.optional) <= names
        assert names.intersection(counters)  # this client has only read
    every = [name for part in known.parts.values() for name in part]
    assert len(set(every)) == len(every)
    compared = (*known.metrics.values(), *known.load.values())
    assert {name for metric in compared for name in metric.needs} == set(every)


@pytest.mark.parametrize(
    ("fixture", "source", "expected"),
    [
        ("server-2.15", "lustre_ost", {"read_latency", "write_latency"}),
        ("server-2.15", "lustre_mdt", {"open_latency", "getattr_latency"}),
        ("server-2.15", "lustre_mds_service", {"wait_time", "queue_depth", "active_requests"}),
        ("oss-2.10", "lustre_oss_service", {"wait_time", "queue_depth", "active_requests"}),
        ("client-2.16", "lustre_osc", {"read_latency", "rpc_latency"}),
        ("client-2.16", "lustre_mdc", {"close_latency", "rpc_latency"}),
    ],
)
def test_lustre(fixture: str, source: str, expected: set[str]) -> None:
    reading = Watched(trees(FIXTURES / fixture)).sample().readings[source]
    assert complete(source, reading.fields) >= expected
    assert {name for c in reading.components for name, _ in c.labels} >= set(SOURCES[source].peers)


def test_nfs(tmp_path: Path) -> None:
    file = tmp_path / "self" / "mountstats"
    file.parent.mkdir()
    shutil.copy(FIXTURES.parent / "mountstats" / "client-6.8", file)
    reading = (
        Sampled(lambda now, _: Mountstats(MountstatsSettings(), surroundings(now, procfs=tmp_path)))
        .sample()
        .readings["nfs_mount"]
    )
    assert complete("nfs_mount", reading.fields) >= set(SOURCES["nfs_mount"].metrics) - {"create_rtt"}
    assert all({*SOURCES["nfs_mount"].peers} <= dict(c.labels).keys() for c in reading.components)


def test_osts_without_times_have_no_latency() -> None:
    reading = Watched(trees(FIXTURES / "oss-2.10")).sample().readings["lustre_ost"]
    assert complete("lustre_ost", reading.fields) == {"throughput"}


def test_gluster(tmp_path: Path) -> None:
    readings = Folder(tmp_path, BRICK, CLIENT).sampled.sample().readings
    for source in ("gluster_brick", "gluster_client"):
        assert complete(source, readings[source].fields) >= {"read_latency", "write_latency"}
        names = {field.name for field in readings[source].fields}
        assert {"fop_lookup_count", "fop_lookup_latency_ns"} <= names & set(SOURCES[source].optional)
        assert {name for c in readings[source].components for name, _ in c.labels} == {"volume"}
