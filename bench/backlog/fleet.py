"""The backlog of many nodes at once, played by few connections that keep to the agents' backlog rate."""

import asyncio
import contextlib
import os
import random
import statistics
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import aiomqtt
import numpy as np

from bench.agent_cost.cost import cpu_ns
from bench.backlog import spool_capacity
from bench.backlog.one import KEPT
from bench.backlog.watch import Seen, messages, verdicts
from bench.hostile_clients.site import NODES, SLOW, Site
from bench.scale.batches import Batches
from bench.scale.shapes import FIELDS, Shape
from laggard_agent.spool.backlog import LEAST_TICKS
from laggard_agent.spool.segments import SpooledBatch
from laggard_agent.transport.pacing import BacklogRate
from laggard_common import wire
from laggard_common.wire import Kind, topics
from laggard_common.wire.limits import STREAM_BYTES
from laggard_common.wire.schema import Schema
from tests.support.filled_spool import SECOND

CONNECTIONS = 4
MOST_SECONDS = 1800.0
COMPUTE_NODES, SERVERS = 40_960, 578  # of TaihuLight
QUIET_SECONDS = 20.0
FLUSHED_SECONDS = 18.0
"""After the last acknowledgement, until the archive has everything."""


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
        "| live batches acknowledged after, median and most: before; beside it | windows judged late by "
        "| gaps, duplicates | alarm | for TaihuLight on one core |",
        "|---|---:|---:|---:|---:|---:|---|---:|---:|---|---|",
    ]
    good = True
    for what, all_of, shape in (
        ("compute nodes, 8 counters", COMPUTE_NODES, Shape("compute", compute, 1, 8, 10)),
        ("servers, 64 x 17 counters", SERVERS, Shape("forwarding", servers, 64, 17, 5)),
    ):
        if shape.nodes:
            line, right = _row(f"{shape.nodes:,} {what}", _nodes(shape, outage_seconds), all_of)
            lines.append(line)
            good &= right
    return lines, good


def _row(what: str, nodes: list[Node], all_of: int) -> tuple[str, bool]:
    with TemporaryDirectory() as folder:
        site, seen, quiet = Site(Path(folder), tls=False, more=KEPT.format(folder)), Seen(), Seen()
        with site.running():
            site.until("the alarm", lambda: site.alarms() == [f"{SLOW}/sda"])
            pids = (site.aggregator.pid, site.broker.pid)
            before = site.figures()
            with verdicts(site, quiet), messages(site, NODES[0], {}, quiet):
                idle = _cpu_seconds(pids, QUIET_SECONDS)
            cpu, began = [cpu_ns(pid) for pid in pids], time.monotonic()
            with verdicts(site, seen), messages(site, NODES[0], {}, seen):
                finished = _played(site, nodes)
                took = time.monotonic() - began
                time.sleep(FLUSHED_SECONDS)
            lasted = time.monotonic() - began
            spent = [(cpu_ns(pid) - at) / 1e9 for pid, at in zip(pids, cpu, strict=True)]
            after = site.figures()
    counted = [
        after[f"laggard_{name}_total"] - before[f"laggard_{name}_total"] for name in ("gaps", "duplicates")
    ]
    sent = [stored for node in nodes for stored in node.waiting]
    own = [max(s - q * lasted, 0.0) / len(nodes) for s, q in zip(spent, idle, strict=True)]
    good = finished and not any(counted) and seen.alarms_stood and max(seen.lags) < 5
    live = "; ".join(
        f"{statistics.median(each.live_acknowledged):.1f} s, {max(each.live_acknowledged):.1f} s"
        for each in (quiet, seen)
    )
    return (
        f"| {what} | {len(sent):,} | {sum(len(wire.encode_envelope(s.envelope)) for s in sent) / 2**20:.1f} "
        f"| {f'{took:.0f} s' if finished else 'NOT ALL'} | {own[0] * 1e3:.1f} | {own[1] * 1e3:.1f} "
        f"| {live} | {max(seen.lags):.1f} s | {counted[0]:.0f}, {counted[1]:.0f} "
        f"| {'stood' if seen.alarms_stood else 'CHANGED'} | {all_of:,}: {own[0] * all_of / 60:.1f} min |"
    ), good


def _cpu_seconds(pids: tuple[int, int], seconds: float) -> list[float]:
    """What aggregator and broker take a second without a backlog."""
    before, began = [cpu_ns(pid) for pid in pids], time.monotonic()
    time.sleep(seconds)
    lasted = time.monotonic() - began
    return [(cpu_ns(pid) - at) / 1e9 / lasted for pid, at in zip(pids, before, strict=True)]


def _nodes(shape: Shape, seconds: int) -> list[Node]:
    """Nodes with names, streams and counters of their own; their messages are as long as an agent's."""
    start = (time.time_ns() // SECOND - seconds) * SECOND
    rows = ([tuple(range(at, at + shape.fields))] * shape.components for at in range(seconds))
    with TemporaryDirectory() as folder:
        readings = spool_capacity.counters("diskstats", FIELDS[: shape.fields], rows, start)
        _, like = spool_capacity.messages(Path(folder), readings, shape.ticks)
    made = []
    for number, name in enumerate(shape.names()):
        schema = shape.schema(name, os.urandom(STREAM_BYTES))
        rate = BacklogRate(1 / shape.ticks, LEAST_TICKS, random.Random(number))
        made.append(Node(name, shape.role, schema, [], rate))
    batches, everyone = Batches(shape, seed=1), np.arange(shape.nodes)
    for message in like:
        e = message.envelope
        ticks = wire.split_joined(e)[0] if e.kind == Kind.JOINED else ()
        for node, payload in zip(made, batches.next(everyone, e.n), strict=True):
            joined = wire.join_payload(ticks, payload) if ticks else payload
            own = replace(e, node=node.name, stream=node.schema.stream, payload=joined)
            node.waiting.append(SpooledBatch(own, message.count))
    return made


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
