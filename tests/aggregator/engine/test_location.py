"""The located cause from raw counters of clients, servers and their LUNs, through the engine."""

import re
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge

import numpy as np

from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.groups.membership import ConfiguredMembership, PeerGroup, Rule
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.status.location import Location
from laggard_aggregator.status.paths import located
from laggard_aggregator.status.straggler_list import standings
from tests.aggregator.engine.test_machine import DETECT, START, play
from tests.aggregator.engine.test_machine_sources import schema_of
from tests.support.builders.batches import DISKSTATS, SECOND, batch_of

SERVERS, CLIENTS = 6, 5
SECONDS, SLOW_FROM = 420, 180
Slow = Mapping[str, float]
"""Factors of `disk`, `server` (of the third one) and `client` (of the second one)."""


def ost(server: int) -> str:
    return f"scratch-OST000{server}"


def stream(
    source: str,
    node: str,
    components: Sequence[str],
    role: str,
    rises: Mapping[str, np.ndarray],
    **labels: str,
) -> Iterator[Batch]:
    """Five ticks a message; `rises` by field (SECONDS, components)."""
    schema = schema_of(source, node, components, list(rises), **labels)
    totals = np.cumsum(np.stack(list(rises.values()), axis=2).astype(np.int64), axis=0)
    for begin in range(0, SECONDS, 5):
        at = START + (begin + 1) * SECOND
        yield batch_of(schema, totals[begin : begin + 5], at, seq=begin // 5, role=role)


def site(slow: Slow) -> Iterator[Batch]:
    """Six servers with an OST on a disk each, and five clients that read from all; slow from SLOW_FROM on."""
    chance = np.random.default_rng(3)
    late = np.arange(SECONDS)[:, None] >= SLOW_FROM
    noise = chance.uniform(0.9, 1.1, (SECONDS, SERVERS))
    third, second = np.arange(SERVERS) == 2, np.arange(CLIENTS) == 1
    disk_us = 4_000 * noise * np.where(late & third, slow.get("disk", 1.0), 1.0)
    ost_us = disk_us + 1_000 * noise
    ost_us *= np.where(late & third, slow.get("server", 1.0), 1.0)
    streams = []
    for server in range(SERVERS):
        own, node = slice(server, server + 1), f"oss-{server}"
        count = chance.integers(80, 120, (SECONDS, 1))
        disks = {name: np.zeros((SECONDS, 1)) for name in DISKSTATS}
        reads = {"rd_ios": count, "rd_sectors": count * 2048, "rd_ms": count * disk_us[:, own] / 1000}
        streams.append(stream("diskstats", node, ["sda"], "storage", {**disks, **reads}))
        times = {"read_samples": count, "read_sum": count * ost_us[:, own], **moved(count)}
        streams.append(
            stream("lustre_ost", node, [ost(server)], "storage", times, scope="site", fs="scratch")
        )
    for client in range(CLIENTS):
        count = chance.integers(15, 25, (SECONDS, SERVERS))
        factor = np.where(late & second[client], slow.get("client", 1.0), 1.0)
        times = {"ost_read_samples": count, "ost_read_sum": count * (ost_us + 500) * factor, **moved(count)}
        names = [f"{ost(server)}-osc" for server in range(SERVERS)]
        streams.append(stream("lustre_osc", f"node-{client}", names, "compute", times, fs="scratch"))
    return merge(*streams, key=lambda batch: batch.received_ns)


def moved(count: np.ndarray) -> dict[str, np.ndarray]:
    nothing = np.zeros(count.shape)
    return {
        "read_bytes_samples": count,
        "read_bytes_sum": count * 2**20,
        "write_bytes_samples": nothing,
        "write_bytes_sum": nothing,
    }


def locations(slow: Slow) -> tuple[set[tuple[str, str]], dict[tuple[str, str, str], Location]]:
    """The causes when the data end, and the located alarms."""
    clients = PeerGroup("clients", "lustre_client", "compute", ("read_latency",), DETECT)
    pipeline = Machine(ConfiguredMembership((Rule(clients, re.compile(".*")),), DETECT), lateness_seconds=2.0)
    judged, _ = play(pipeline, site(slow))
    latest = {(each.group, each.metric): each for each in judged}.values()
    rows = standings(latest, pipeline.judge.alarms.standing, str, lambda *_: None)
    found = located(rows, latest, pipeline.groups, pipeline.topology, pipeline.hosts())
    return {(where.level, where.component) for where in found.values()}, found


def test_a_slow_disk_a_slow_server_and_a_slow_client_are_told_apart() -> None:
    causes, alarms = locations({"disk": 3.0})
    assert causes == {("lun", "oss-2/sda")}
    assert ("storage/lustre_ost/scratch", "scratch-OST0002", "read_latency") in alarms
    assert sum(group.startswith("compute/lustre_osc/") for group, _, _ in alarms) == CLIENTS
    assert locations({"server": 3.0})[0] == {("server", "oss-2")}
    causes, alarms = locations({"client": 3.0})
    assert causes == {("client", "node-1")}
    assert set(alarms) == {("clients", "node-1/lustre_client", "read_latency")}


def test_a_site_without_stragglers_has_no_causes() -> None:
    assert locations({}) == (set(), {})
