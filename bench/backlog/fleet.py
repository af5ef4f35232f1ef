"""The backlog of many nodes at once, played by few connections that keep to the agents' backlog rate."""

import asyncio
import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import aiomqtt

from bench.agent_cost.cost import cpu_ns
from bench.backlog.one import KEPT
from bench.backlog.spool_capacity import counters, messages
from bench.backlog.watch import Seen, verdicts
from bench.hostile_clients.site import SLOW, Site
from laggard_agent.spool.backlog import ENOUGH_TICKS
from laggard_agent.spool.segments import SpooledBatch
from laggard_agent.transport.pacing import BacklogRate
from laggard_common import wire
from laggard_common.wire import topics
from laggard_common.wire.codec import Row
from laggard_common.wire.limits import STREAM_BYTES
from laggard_common.wire.schema import Schema
from tests.support.filled_spool import SECOND

CONNECTIONS = 4
MOST_SECONDS = 1800.0
COMPUTE_NODES, SERVERS = 40_960, 578  # of TaihuLight
FIELDS = (
    *("rd_ios", "rd_sectors", "rd_ms", "wr_ios", "wr_sectors", "wr_ms", "io_ms", "weighted_ms"),
    *("rd_merges", "wr_merges", "in_flight", "dc_ios", "dc_merges", "dc_sectors", "dc_ms", "fl_ios", "fl_ms"),
)


@dataclass(slots=True)
class Node:
    """A node with what waits in its spool. `acknowledged`: all seqs below it are."""

    name: str
    role: str
    schema: Schema
    waiting: list[SpooledBatch]
    rate: BacklogRate
    acknowledged: int = 0
    sent: int = 0

    @property
    def done(self) -> bool:
        """Whether the aggregator has everything."""
        return self.acknowledged > self.waiting[-1].seqs[1]


def table(outage_seconds: int, compute: int, servers: int) -> tuple[list[str], bool]:
    """The lines of a table in Markdown, and whether all came in, once, and verdicts stayed."""
    lines = [
        "| an hour of | messages | MiB | in after | aggregator's CPU a node, ms | broker's, ms "
        "| windows judged late by | gaps, duplicates | alarm | for TaihuLight on one core |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|---|",
    ]
    good = True
    for what, role, count, all_of, shape, batch in (
        ("compute nodes, 8 counters", "compute", compute, COMPUTE_NODES, (1, 8), 10),
        ("servers, 64 x 17 counters", "forwarding", servers, SERVERS, (64, 17), 5),
    ):
        line, right = _row(f"{count} {what}", _nodes(role, count, shape, batch, outage_seconds), all_of)
        lines.append(line)
        good &= right
    return lines, good


def _row(what: str, nodes: list[Node], all_of: int) -> tuple[str, bool]:
    with TemporaryDirectory() as folder:
        site, seen = Site(Path(folder), tls=False, more=KEPT.format(folder)), Seen()
        with site.running():
            site.until("the alarm", lambda: site.alarms() == [f"{SLOW}/sda"])
            before = site.figures()
            quiet = _cpu_seconds(site, 10.0)
            pids = (site.aggregator.pid, site.broker.pid)
            cpu, began = [cpu_ns(pid) for pid in pids], time.monotonic()
            with verdicts(site, seen):
                finished = _played(site, nodes)
                took = time.monotonic() - began
                spent = [(cpu_ns(pid) - at) / 1e9 for pid, at in zip(pids, cpu, strict=True)]
                time.sleep(12)
            after = site.figures()
    counted = [
        after[f"laggard_{name}_total"] - before[f"laggard_{name}_total"] for name in ("gaps", "duplicates")
    ]
    sent = [stored for node in nodes for stored in node.waiting]
    own = [max(s - q * took, 0.0) / len(nodes) for s, q in zip(spent, quiet, strict=True)]
    good = finished and not any(counted) and seen.alarms_stood and max(seen.lags) < 5
    return (
        f"| {what} | {len(sent):,} | {sum(len(wire.encode_envelope(s.envelope)) for s in sent) / 2**20:.1f} "
        f"| {f'{took:.0f} s' if finished else 'NOT ALL'} | {own[0] * 1e3:.0f} | {own[1] * 1e3:.1f} "
        f"| {max(seen.lags):.1f} s | {counted[0]:.0f}, {counted[1]:.0f} "
        f"| {'stood' if seen.alarms_stood else 'CHANGED'} | {all_of:,}: {own[0] * all_of / 60:.0f} min |"
    ), good


def _cpu_seconds(site: Site, seconds: float) -> list[float]:
    """What aggregator and broker take a second without a backlog."""
    pids = (site.aggregator.pid, site.broker.pid)
    before = [cpu_ns(pid) for pid in pids]
    time.sleep(seconds)
    return [(cpu_ns(pid) - at) / 1e9 / seconds for pid, at in zip(pids, before, strict=True)]


def _nodes(role: str, count: int, shape: tuple[int, int], batch: int, seconds: int) -> list[Node]:
    """Nodes with the same counters under names and streams of their own."""
    start = (time.time_ns() // SECOND - seconds) * SECOND
    with TemporaryDirectory() as folder:
        readings = counters("diskstats", FIELDS[: shape[1]], _rows(shape, seconds), start)
        schema, backlog = messages(Path(folder), readings, batch)
    made = []
    for number in range(count):
        name, stream = f"{role}-{number}", os.urandom(STREAM_BYTES)
        own = [replace(s, envelope=replace(s.envelope, node=name, stream=stream)) for s in backlog]
        made.append(
            Node(
                name,
                role,
                replace(schema, node=name, stream=stream),
                own,
                BacklogRate(1 / batch, ENOUGH_TICKS, random.Random(number)),
            )
        )
    return made


def _rows(shape: tuple[int, int], seconds: int) -> Iterator[list[Row]]:
    chance = random.Random(1)
    values = [[chance.randrange(10**9) for _ in range(shape[1])] for _ in range(shape[0])]
    for _ in range(seconds):
        values = [[value + chance.randrange(1, 200) for value in row] for row in values]
        yield [tuple(row) for row in values]


def _played(site: Site, nodes: list[Node]) -> bool:
    """Whether everything of all nodes was acknowledged in time."""
    finished = [False] * CONNECTIONS

    def play(number: int) -> None:
        finished[number] = asyncio.run(_play(site, number, nodes[number::CONNECTIONS]))

    threads = [threading.Thread(target=play, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return all(finished)


async def _play(site: Site, number: int, nodes: list[Node]) -> bool:
    by_topic = {topics.ack_topic("site", node.name): node for node in nodes}
    async with aiomqtt.Client("localhost", site.port, identifier=f"fleet-{number}", timeout=60) as client:
        client.pending_calls_threshold = 10_000
        for topic in by_topic:
            await client.subscribe(topic, qos=1)
        for node in nodes:
            topic = topics.schema_topic("site", node.role, node.name, node.schema.source)
            await client.publish(topic, wire.encode_schema(node.schema), qos=1)
        hearing = asyncio.create_task(_hear(client, by_topic))
        try:
            async with asyncio.timeout(MOST_SECONDS):
                for node in nodes:
                    node.rate.connected(time.monotonic(), 3600.0)
                while not all(node.done for node in nodes):
                    for node in nodes:
                        await _step(client, node)
                    await asyncio.sleep(0.02)
        except TimeoutError:
            return False
        finally:
            hearing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await hearing
    return True


async def _step(client: aiomqtt.Client, node: Node) -> None:
    """Publishes the node's next message, if its agent would."""
    now = time.monotonic()
    if node.sent == len(node.waiting) or node.rate.due > now:
        return
    if node.rate.may_send(now):
        stored = node.waiting[node.sent]
        topic = topics.data_topic("site", node.role, node.name, stored.envelope.source)
        await client.publish(topic, wire.encode_envelope(stored.envelope), qos=1)
        node.sent += 1
        node.rate.sent(stored, now)


async def _hear(client: aiomqtt.Client, by_topic: dict[str, Node]) -> None:
    async for message in client.messages:
        assert isinstance(message.payload, bytes)
        node = by_topic[message.topic.value]
        for ack in wire.decode_ack(message.payload):
            node.rate.acknowledged(ack, time.monotonic())
            if ack.ranges and ack.ranges[0][0] == 0:
                node.acknowledged = ack.ranges[0][1] + 1
