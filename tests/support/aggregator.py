"""A whole aggregator in this process: embedded broker, HTTP, and a client that publishes as every agent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiomqtt

from laggard_aggregator.app import App
from laggard_aggregator.detect.cdf.detector import CdfDetector
from laggard_aggregator.detect.trained_thresholds import Thresholds
from laggard_aggregator.settings import thresholds_file
from laggard_aggregator.settings.aggregator import (
    AggregatorSettings,
    ArchiveTable,
    BrokerSettings,
    DetectTable,
)
from laggard_aggregator.settings.http import HttpSettings
from laggard_common import wire
from laggard_common.wire import Envelope, Kind, codec, topics
from laggard_common.wire.schema import Component, Field, Schema
from tests.support.builders.batches import SECOND
from tests.support.clock import HandClock
from tests.support.ports import free_port
from tests.support.wait import LIMIT_SECONDS, async_wait_until, time_limit

START = 1_800_000_000 * SECOND


COUNTERS = ("rd_ios", "rd_sectors", "rd_ms", "wr_ios", "wr_sectors", "wr_ms", "io_ms", "weighted_ms")


NODES = tuple(f"oss-{n}" for n in range(1, 9))


SLOW = "oss-5"


def settings(archive: Path | None = None, **changes: Any) -> AggregatorSettings:
    made = AggregatorSettings(
        mqtt=BrokerSettings(port=free_port(), embedded=True),
        http=HttpSettings("127.0.0.1:0"),
        detect=DetectTable(interval_seconds=1.0, window_samples=20, shift_samples=10, confirm=2),
        archive=None if archive is None else ArchiveTable(archive),
    )
    return replace(made, **changes)


def schema(node: str) -> Schema:
    fields = tuple(Field(name) for name in COUNTERS)
    return Schema(node, "diskstats", b"s" * 16, 1, SECOND, 5, fields, (Component("wwn", "sda"),))


def envelope(node: str, seq: int) -> Envelope:
    """Five seconds of a LUN with 100 reads a second of 5 ms give or take, the slow one 50 ms."""
    ticks = range(5 * seq + 1, 5 * seq + 6)
    ms = {t: (5_000 if node == SLOW else 500) * t + t * (17 * NODES.index(node) + 29) % 60 for t in ticks}
    rows = [[[100 * t, 12_800 * t, ms[t], 0, 0, 0, 900 * t, ms[t]]] for t in ticks]
    return Envelope(
        kind=Kind.COUNTERS,
        node=node,
        source="diskstats",
        stream=b"s" * 16,
        seq=seq,
        schema_epoch=1,
        t0_ns=START + ticks[0] * SECOND,
        dt_ns=SECOND,
        n=5,
        codec=codec.DELTA_ZSTD,
        payload=codec.Encoder().encode([0], rows, [0] * 5),
    )


@asynccontextmanager
async def running(app: App) -> AsyncIterator[None]:
    stop, started = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(app.run(stop, started))
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        await task
    try:
        await async_wait_until(lambda: app.view.ready)
        yield
    finally:
        stop.set()
        async with time_limit():
            await task


@asynccontextmanager
async def client(port: int) -> AsyncIterator[aiomqtt.Client]:
    async with aiomqtt.Client("127.0.0.1", port, identifier="all-agents", timeout=LIMIT_SECONDS) as connected:
        yield connected


async def publish_seconds(to: aiomqtt.Client, app: App, clock: HandClock, batches: range) -> None:
    """Every node's batches, each when it would come; windows close in between."""
    for seq in batches:
        clock.ns = START + (5 * seq + 6) * SECOND
        for node in NODES:
            payload = wire.encode_envelope(envelope(node, seq))
            await to.publish(topics.data_topic("site", "storage", node, "diskstats"), payload, qos=1)
        await async_wait_until(lambda: app.view.counters().samples == 5 * len(NODES) * (seq + 1))  # noqa: B023
        # a window is due at most 1 s of lateness, 5 s of batch and 1 s of stagger after its end
        closed = max(5 * seq + 6 - 7, 0) // 10
        await async_wait_until(lambda: app.view.counters().windows >= closed)  # noqa: B023


async def publish_schemas(to: aiomqtt.Client) -> None:
    for node in NODES:
        topic = topics.schema_topic("site", "storage", node, "diskstats")
        await to.publish(topic, wire.encode_schema(schema(node)), qos=1)


def shadowed(folder: Path) -> DetectTable:
    """The table of `settings` with the shadow `cdf`, which finds every LUN anomalous (zero_thresholds)."""
    return replace(settings().detect, shadow="cdf", shadow_thresholds=zero_thresholds(folder / "cdf.toml"))


def zero_thresholds(path: Path) -> str:
    """A file of thresholds by which `cdf` finds every LUN anomalous that differs from its peers at all."""
    names = {f"{node}/wwn": 0.0 for node in NODES}
    options = {"bin_limit": 1000, "bin_limit_mode": "widen"}
    groups = {"storage/diskstats": {"await": names}}
    made = Thresholds("cdf", CdfDetector.version, "2026-01-31T00:00:00Z", (), 1.0, 20, groups, options)
    thresholds_file.save(path, made)
    return str(path)
