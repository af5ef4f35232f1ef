"""The whole aggregator in this process: embedded broker, a real client as all agents, HTTP, archive."""

import asyncio
import json
import logging
import socket
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from laggard_aggregator.app import App
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.offline.archive_replay import Replay
from laggard_aggregator.settings.aggregator import (
    AggregatorSettings,
    AlarmTable,
    ArchiveTable,
    BrokerSettings,
    DetectTable,
    PeakTable,
)
from laggard_aggregator.settings.http import HttpSettings
from laggard_common import wire
from laggard_common.errors import ArchiveError, ServiceError
from laggard_common.wire import Ack, Envelope, Kind, codec, topics
from laggard_common.wire.schema import Component, Field, Schema
from tests.support.builders.batches import SECOND
from tests.support.clock import HandClock
from tests.support.wait import LIMIT_SECONDS, async_wait_until, time_limit

START = 1_800_000_000 * SECOND
COUNTERS = ("rd_ios", "rd_sectors", "rd_ms", "wr_ios", "wr_sectors", "wr_ms", "io_ms", "weighted_ms")
NODES = tuple(f"oss-{n}" for n in range(1, 9))
SLOW = "oss-5"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


"""For what waits for the disk: an archive's first flush is some forty fsyncs, each slow on a busy disk."""


async def until(condition: Callable[[], bool]) -> None:
    """Polls; the deadline fails the test."""
    await async_wait_until(condition)


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
        await until(lambda: app.view.ready)
        yield
    finally:
        stop.set()
        async with time_limit():
            await task


@asynccontextmanager
async def client(port: int) -> AsyncIterator[aiomqtt.Client]:
    async with aiomqtt.Client("127.0.0.1", port, identifier="all-agents") as connected:
        yield connected


async def publish_seconds(to: aiomqtt.Client, app: App, clock: HandClock, batches: range) -> None:
    """Every node's batches, each when it would come; windows close in between."""
    for seq in batches:
        clock.ns = START + (5 * seq + 6) * SECOND
        for node in NODES:
            payload = wire.encode_envelope(envelope(node, seq))
            await to.publish(topics.data_topic("site", "storage", node, "diskstats"), payload, qos=1)
        await until(lambda: app.view.counters().samples == 5 * len(NODES) * (seq + 1))  # noqa: B023
        # a window is due at most 1 s of lateness, 5 s of batch and 1 s of stagger after its end
        closed = max(5 * seq + 6 - 7, 0) // 10
        await until(lambda: app.view.counters().windows >= closed)  # noqa: B023


async def get(url: str) -> str:
    def fetch() -> str:
        with urllib.request.urlopen(url, timeout=LIMIT_SECONDS) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(fetch)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_from_messages_to_alarm_metrics_acknowledgement_and_archive(tmp_path: Path) -> None:
    async def story() -> None:
        clock = HandClock(START)
        made = settings(archive=tmp_path / "archive")
        app = App(made, clock)
        acks: dict[str, tuple[Ack, ...]] = {}
        async with running(app), client(made.mqtt.port) as agents:
            await agents.subscribe("laggard/1/site/ack/+", qos=1)
            for node in NODES:
                topic = topics.schema_topic("site", "storage", node, "diskstats")
                await agents.publish(topic, wire.encode_schema(schema(node)), qos=1, retain=True)
            await publish_seconds(agents, app, clock, range(12))
            key = ("storage/diskstats", f"{SLOW}/wwn", "await")
            await until(lambda: key in app.view.alarms())
            assert list(app.view.alarms()) == [key]
            assert app.view.alarms()[key].observed == pytest.approx(50, rel=0.01)
            (group,) = app.view.groups()
            assert (group.name, group.live, group.silent, group.automatic) == (key[0], 8, 0, True)
            assert app.view.shown(f"{SLOW}/wwn") == f"{SLOW}/sda"
            assert app.view.node_counts() == {("storage", "up"): 8}
            metrics = await get(app.url + "/metrics")
            (active,) = (line for line in metrics.splitlines() if line.startswith("laggard_alarm_active{"))
            assert f'component="{SLOW}/wwn"' in active
            assert active.endswith(" 1.0")
            stragglers = json.loads(await get(app.url + "/api/v1/stragglers"))
            assert [one["name"] for one in stragglers["stragglers"]] == [f"{SLOW}/sda"]
            assert json.loads(await get(app.url + "/readyz")) == {"ready": True}
            async with time_limit():
                async for message in agents.messages:
                    assert isinstance(message.payload, bytes)
                    acks[message.topic.value] = wire.decode_ack(message.payload)
                    if len(acks) == len(NODES):
                        break
        assert acks["laggard/1/site/ack/oss-1"][0].ranges[0][0] == 0
        counters = app.view.counters()
        assert (counters.duplicates, counters.late_samples, counters.archive_dropped) == (0, 0, 0)
        assert len(list(ArchiveReader(tmp_path / "archive").closes())) == counters.windows
        found = app.view.judgements()[0]
        replayed = list(Replay(ArchiveReader(tmp_path / "archive")).judgements())
        assert replayed[-1].end == found.end
        assert replayed[-1].verdicts.score.tobytes() == found.verdicts.score.tobytes()
        assert [t.alarm.component for j in replayed for t in j.transitions] == [f"{SLOW}/wwn"]

    run(story())


def test_without_an_archive_batches_are_acknowledged_when_taken() -> None:
    async def story() -> None:
        made = settings()
        async with running(App(made)), client(made.mqtt.port) as agent:
            await agent.subscribe("laggard/1/site/ack/oss-1", qos=1)
            topic = topics.schema_topic("site", "storage", "oss-1", "diskstats")
            await agent.publish(topic, wire.encode_schema(schema("oss-1")), qos=1)
            payload = wire.encode_envelope(replace(envelope("oss-1", 0), t0_ns=_now_ns()))
            await agent.publish(topics.data_topic("site", "storage", "oss-1", "diskstats"), payload, qos=1)
            async with time_limit():
                message = await anext(aiter(agent.messages))
            assert isinstance(message.payload, bytes)
            assert wire.decode_ack(message.payload) == (Ack(b"s" * 16, "diskstats", ((0, 0),)),)

    run(story())


def _now_ns() -> int:
    from laggard_common.clock import SystemClock  # noqa: PLC0415

    return SystemClock().wall_ns()


def test_a_restart_finds_retained_schemas_by_itself() -> None:
    """The broker outlives the aggregator here; messages that came before their schema wait for it."""

    async def story() -> None:
        broker = settings()
        clock = HandClock(START)
        async with running(App(broker, clock)), client(broker.mqtt.port) as agent:
            topic = topics.schema_topic("site", "storage", "oss-1", "diskstats")
            await agent.publish(topic, wire.encode_schema(schema("oss-1")), qos=1, retain=True)
            second = replace(
                broker, mqtt=replace(broker.mqtt, embedded=False, clean_session=True, client_id="second")
            )
            app = App(second, clock)
            async with running(app):
                payload = wire.encode_envelope(envelope("oss-1", 0))
                await agent.publish(
                    topics.data_topic("site", "storage", "oss-1", "diskstats"), payload, qos=1
                )
                await until(lambda: app.view.counters().samples == 5)

    run(story())


def test_ports_that_are_taken_are_one_clear_error() -> None:
    async def story(made: AggregatorSettings, message: str) -> None:
        with pytest.raises(ServiceError, match=message):
            async with running(App(made)):
                pass

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run(story(settings(http=HttpSettings(f"127.0.0.1:{port}")), f"{port}: the port is taken"))
        broker = BrokerSettings(port=port, embedded=True)
        run(story(settings(mqtt=broker), f"the embedded broker cannot listen on .*{port}: the port is taken"))


def test_an_archive_that_cannot_be_written_is_an_error_at_start(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    async def story() -> None:
        async with running(App(settings(archive=file))):
            pass

    with pytest.raises(ArchiveError):
        run(story())


def test_sections_that_are_not_used_yet_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    made = settings(peak=(PeakTable(".*", "tps", 1.0),), alarm=AlarmTable(60.0))

    async def story() -> None:
        async with running(App(made)):
            pass

    with caplog.at_level(logging.WARNING, "laggard_aggregator"):
        run(story())
    assert [r.getMessage() for r in caplog.records] == [
        "[[peak]] is checked but has no effect in this version"
    ]
