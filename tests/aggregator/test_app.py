"""The whole aggregator in this process: embedded broker, a real client as all agents, HTTP, archive."""

import asyncio
import json
import socket
import urllib.request
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from laggard_aggregator.app import App
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.offline.archive_replay import ArchiveReplay
from laggard_aggregator.settings.aggregator import (
    AggregatorSettings,
    BrokerSettings,
    StateTable,
)
from laggard_aggregator.settings.http import HttpSettings
from laggard_aggregator.status.view import failing
from laggard_common import wire
from laggard_common.errors import ServiceError
from laggard_common.wire import Ack, topics
from tests.support.aggregator import (
    NODES,
    SLOW,
    START,
    client,
    envelope,
    publish_schemas,
    publish_seconds,
    running,
    schema,
    settings,
    shadowed,
)
from tests.support.clock import HandClock
from tests.support.ports import free_port
from tests.support.wait import LIMIT_SECONDS, async_wait_until, time_limit


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
            await async_wait_until(lambda: key in app.view.alarms())
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
        replayed = list(ArchiveReplay(ArchiveReader(tmp_path / "archive")).judgements())
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
                await async_wait_until(lambda: app.view.counters().samples == 5)

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


def test_an_archive_that_cannot_be_used_at_the_start_is_told_and_used_later(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    async def story() -> None:
        app = App(settings(archive=file, state=StateTable(tmp_path / "state", catch_up_seconds=0.0)))
        async with running(app):
            assert app.view.counters().archive_up is False
            durability = app.view.durability()
            assert durability is not None
            assert durability.whole, "messages are acknowledged"
            problem = failing(app.view.counters(), None)["archive"]
            assert problem.startswith(f"archive cannot be written: {file}")
            text = await get(app.url + "/metrics")
            assert "laggard_archive_up 0.0" in text
            file.unlink()
            assert app._archive is not None
            assert await app._archive.write(flush=True)
            async with time_limit():  # an answer is kept for a moment
                while "laggard_archive_up 1.0" not in await get(app.url + "/metrics"):
                    pass
            assert "archive" not in failing(app.view.counters(), None)

    run(story())
    assert len(ArchiveReader(file).runs()) == 1


def test_a_shadow_is_compared_and_raises_no_alarm(tmp_path: Path) -> None:
    """The `cdf` finds every LUN anomalous at thresholds of 0, over a restart too."""
    made = settings(
        archive=tmp_path / "archive", detect=shadowed(tmp_path), state=StateTable(tmp_path / "state")
    )
    key = ("storage/diskstats", f"{SLOW}/wwn", "await")

    async def at_work(app: App) -> None:
        assert list(app.view.alarms()) == [key]
        metrics = (await get(app.url + "/metrics")).splitlines()
        (active,) = (line for line in metrics if line.startswith("laggard_alarm_active{"))
        assert f'component="{SLOW}/wwn"' in active
        (only,) = (line for line in metrics if line.startswith('laggard_shadow_stragglers{agrees="no"'))
        assert float(only.rpartition(" ")[2]) >= 5
        stragglers = json.loads(await get(app.url + "/api/v1/stragglers"))["stragglers"]
        assert [one["name"] for one in stragglers] == [f"{SLOW}/sda"]
        assert "more straggler" not in (await get(app.url)).partition("</h1>")[0]
        page = await get(app.url + "/shadows")
        assert "oss-1/sda" in page

    async def story() -> None:
        clock = HandClock(START)
        first = App(made, clock)
        async with running(first), client(made.mqtt.port) as agents:
            await publish_schemas(agents)
            await publish_seconds(agents, first, clock, range(12))
            await at_work(first)
        again = App(replace(made, mqtt=BrokerSettings(port=free_port(), embedded=True)), clock)
        async with running(again):
            assert list(again.view.alarms()) == [key]
        reader = ArchiveReader(tmp_path / "archive")
        raised = {row["component"] for row in reader.table("alarms").to_pylist()}
        assert raised == {f"{SLOW}/wwn"}
        shadows = reader.table("shadow_verdicts").to_pylist()
        assert len({row["component"] for row in shadows if row["straggler"]}) > 5

    run(story())
