"""The whole aggregator again after it was cut off: alarms, acknowledgements and the archive go on."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import aiomqtt
import pytest

from laggard_aggregator.app import App
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.offline.archive_replay import ArchiveReplay
from laggard_aggregator.settings.aggregator import AggregatorSettings, StateTable
from laggard_common import wire
from laggard_common.wire import topics
from tests.support.aggregator import (
    NODES,
    SLOW,
    START,
    client,
    envelope,
    publish_schemas,
    publish_seconds,
    running,
    settings,
)
from tests.support.builders.batches import SECOND
from tests.support.builders.documents import document_envelope
from tests.support.clock import HandClock
from tests.support.wait import LIMIT_SECONDS, async_wait_until, time_limit

KEY = ("storage/diskstats", f"{SLOW}/wwn", "await")


def lasting(tmp_path: Path) -> AggregatorSettings:
    state = StateTable(tmp_path / "state", catch_up_seconds=0.0, snapshot_seconds=600.0)
    return settings(archive=tmp_path / "archive", state=state)


@asynccontextmanager
async def cut_off(app: App) -> AsyncIterator[None]:
    """`app` while the block lasts, and then no more: nothing is brought to an end in order.

    Its threads are gone, too, as those of a process are: none still writes when the next one reads.
    """
    stop, started = asyncio.Event(), asyncio.Event()
    loop, threads = asyncio.get_running_loop(), ThreadPoolExecutor()
    loop.set_default_executor(threads)
    task = asyncio.create_task(app.run(stop, started))
    async with time_limit():
        await started.wait()
    await async_wait_until(lambda: app.view.ready)
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    threads.shutdown(cancel_futures=True)
    loop.set_default_executor(ThreadPoolExecutor())


async def acknowledged(agents: aiomqtt.Client, seq: int, first: int = 0) -> None:
    """Waits until every node's batches from `first` to `seq` are acknowledged, and so in the journal."""
    waiting = set(NODES)
    async with time_limit():
        async for message in agents.messages:
            assert isinstance(message.payload, bytes)
            (ack,) = wire.decode_ack(message.payload)
            assert ack.ranges[0][0] == first
            if ack.ranges[0][1] >= seq:
                waiting.discard(message.topic.value.rpartition("/")[2])
            if not waiting:
                return


def test_a_restart_forgets_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        clock = HandClock(START)
        made = lasting(tmp_path)
        app = App(made, clock)
        async with cut_off(app), client(made.mqtt.port) as agents:
            await agents.subscribe("laggard/1/site/ack/+", qos=1)
            await publish_schemas(agents)
            await publish_seconds(agents, app, clock, range(12))
            await acknowledged(agents, 11)
            await async_wait_until(
                lambda: app.view.judgements()[0].end >= START / SECOND + 50
            )  # the last to close
            alarm, judged = app.view.alarms()[KEY], app.view.judgements()[0]
            durability = app.view.durability()
            assert durability is not None
            assert durability.whole
        again = App(made, clock)
        async with running(again), client(made.mqtt.port) as agents:
            assert again.view.alarms() == {KEY: alarm}
            assert again.view.judgements()[0].verdicts.score.tobytes() == judged.verdicts.score.tobytes()
            assert again.view.shown(KEY[1]) == f"{SLOW}/sda"
            assert again.view.counters().samples == 0
            # No schema is sent again, and the first batches were taken before.
            for seq in range(8, 16):
                clock.ns = START + (5 * seq + 6) * SECOND
                for node in NODES:
                    payload = wire.encode_envelope(envelope(node, seq))
                    await agents.publish(
                        topics.data_topic("site", "storage", node, "diskstats"), payload, qos=1
                    )
                await async_wait_until(
                    lambda: (
                        again.view.counters().messages == 8 * (seq - 7)  # noqa: B023
                    )
                )
            assert (again.view.counters().duplicates, again.view.counters().samples) == (32, 160)
            await async_wait_until(lambda: again.view.counters().windows >= 2)
            assert again.view.alarms()[KEY].since == alarm.since
            assert again.view.alarms()[KEY].raised_at == alarm.raised_at
        reader = ArchiveReader(tmp_path / "archive")
        assert len(reader.runs()) == 1
        taken = [(batch.schema.node, batch.seq) for _, batch in reader.batches()]
        assert sorted(taken) == [(node, seq) for node in NODES for seq in range(16)]
        replayed = list(ArchiveReplay(reader).judgements())
        assert [(t.kind, t.alarm.since) for j in replayed for t in j.transitions] == [("raised", alarm.since)]
        assert replayed[-1].verdicts.score.tobytes() == again.view.judgements()[0].verdicts.score.tobytes()
        assert reader.table("alarms").num_rows == 1

    asyncio.run(story())


def test_documents_are_archived_once_over_a_crash(tmp_path: Path) -> None:
    topic = topics.data_topic("site", "compute", "cn-1", "jobs")

    async def publish(agents: aiomqtt.Client, numbers: range) -> None:
        for number in numbers:
            content = json.dumps({"job": number}).encode()
            await agents.publish(
                topic, wire.encode_envelope(document_envelope(number, START, content)), qos=1
            )

    async def story() -> None:
        clock = HandClock(START)
        made = lasting(tmp_path)
        app = App(made, clock)
        async with cut_off(app), client(made.mqtt.port) as agents:
            await agents.subscribe("laggard/1/site/ack/+", qos=1)
            await publish(agents, range(6))
            async with time_limit():
                async for message in agents.messages:
                    assert isinstance(message.payload, bytes)
                    if any(ack.ranges == ((0, 5),) for ack in wire.decode_ack(message.payload)):
                        break
        again = App(made, clock)
        async with running(again), client(made.mqtt.port) as agents:
            await publish(agents, range(3, 9))
            await async_wait_until(lambda: again.view.counters().messages == 6)
            assert again.view.counters().duplicates == 3
        found = ArchiveReader(tmp_path / "archive").table("events", "jobs")["content"].to_pylist()
        assert [json.loads(each)["job"] for each in found] == list(range(9))

    asyncio.run(story())


def test_two_crashes_in_a_row_take_nothing_out_of_the_archive(tmp_path: Path) -> None:
    async def story() -> None:
        clock = HandClock(START)
        made = lasting(tmp_path)
        app = App(made, clock)
        async with cut_off(app), client(made.mqtt.port) as agents:
            await agents.subscribe("laggard/1/site/ack/+", qos=1)
            await publish_schemas(agents)
            await publish_seconds(agents, app, clock, range(2))
            await acknowledged(agents, 1)  # and 11 s are too short for a flush
        async with cut_off(App(made, clock)):
            pass
        async with running(App(made, clock)):
            pass
        taken = [(batch.schema.node, batch.seq) for _, batch in ArchiveReader(tmp_path / "archive").batches()]
        assert sorted(taken) == [(node, seq) for node in NODES for seq in range(2)]

    asyncio.run(story())


def test_an_archive_that_is_ahead_of_a_damaged_state_takes_what_comes(tmp_path: Path) -> None:
    async def story() -> None:
        clock = HandClock(START)
        made = lasting(tmp_path)
        app = App(made, clock)
        async with running(app), client(made.mqtt.port) as agents:
            await publish_schemas(agents)
            await publish_seconds(agents, app, clock, range(4))
        state = tmp_path / "state"
        max(state.glob("*.snapshot")).unlink()
        for journal in state.glob("*.journal"):
            journal.unlink()
        again = App(made, clock)
        async with running(again), client(made.mqtt.port) as agents:
            await publish_schemas(agents)
            for node in NODES:
                payload = wire.encode_envelope(envelope(node, 4))
                await agents.publish(topics.data_topic("site", "storage", node, "diskstats"), payload, qos=1)
            await async_wait_until(lambda: again.view.counters().samples == 5 * len(NODES))
        taken = [(batch.schema.node, batch.seq) for _, batch in ArchiveReader(tmp_path / "archive").batches()]
        assert sorted(taken) == [(node, seq) for node in NODES for seq in range(5)]

    asyncio.run(story())


def test_a_restart_without_any_snapshot_archives_nothing_twice(tmp_path: Path) -> None:
    """The journal is replayed into an empty state, and the archive has a part of it."""

    async def story() -> None:
        clock = HandClock(START)
        made = lasting(tmp_path)
        app = App(made, clock)
        async with cut_off(app), client(made.mqtt.port) as agents:
            await agents.subscribe("laggard/1/site/ack/+", qos=1)
            await publish_schemas(agents)
            await publish_seconds(agents, app, clock, range(4))
            await acknowledged(agents, 3)
            assert app.view.archive is not None
            assert await app.view.archive.write(flush=True)
            await publish_seconds(agents, app, clock, range(4, 6))
            await acknowledged(agents, 5)
        for snapshot in (tmp_path / "state").glob("*.snapshot"):
            snapshot.write_bytes(snapshot.read_bytes()[:-40])
        again = App(made, clock)
        async with running(again), client(made.mqtt.port) as agents:
            for node in NODES:
                payload = wire.encode_envelope(envelope(node, 6))
                await agents.publish(topics.data_topic("site", "storage", node, "diskstats"), payload, qos=1)
            await async_wait_until(lambda: again.view.counters().samples == 5 * len(NODES))
        reader = ArchiveReader(tmp_path / "archive")
        taken = [(batch.schema.node, batch.seq) for _, batch in reader.batches()]
        assert sorted(taken) == [(node, seq) for node in NODES for seq in range(7)]
        closes = [close.end for _, close in reader.closes()]
        assert len(closes) == len(set(closes)) > 0

    asyncio.run(story())


@pytest.mark.parametrize("kept", [range(6, 6), range(6, 8)])
def test_an_older_archive_beside_a_new_journal_is_of_another_run(tmp_path: Path, kept: range) -> None:
    """The state directory is new, and the first process with it was killed without a usable snapshot."""

    async def story() -> None:
        clock = HandClock(START)
        made = lasting(tmp_path)
        app, state = App(made, clock), tmp_path / "state"
        async with running(app), client(made.mqtt.port) as agents:
            await publish_schemas(agents)
            await publish_seconds(agents, app, clock, range(6))
        state.rename(tmp_path / "old")
        first = App(made, clock)
        async with cut_off(first), client(made.mqtt.port) as agents:
            await agents.subscribe("laggard/1/site/ack/+", qos=1)
            await publish_schemas(agents)
            if kept:
                await publish(agents, first, clock, kept)
                await acknowledged(agents, kept[-1], kept[0])
        for snapshot in state.glob("*.snapshot"):
            snapshot.unlink()
        again = App(made, clock)
        async with running(again), client(made.mqtt.port) as agents:
            await publish_schemas(agents)
            await publish(agents, again, clock, range(8, 9))
            durability = again.view.durability()
            assert durability is not None
            assert durability.lost_batches == 0
        reader = ArchiveReader(tmp_path / "archive")
        taken = [(batch.schema.node, batch.seq) for _, batch in reader.batches()]
        assert sorted(taken) == [(node, seq) for node in NODES for seq in (*range(6), *kept, 8)]

    asyncio.run(story())


def test_an_archive_that_is_down_at_a_restart_gets_all_of_it_once_it_is_back(tmp_path: Path) -> None:
    """Meanwhile messages are judged and acknowledged; the journal has what the archive lacks."""

    async def story() -> None:
        clock = HandClock(START)
        made = lasting(tmp_path)
        app = App(made, clock)
        async with cut_off(app), client(made.mqtt.port) as agents:
            await agents.subscribe("laggard/1/site/ack/+", qos=1)
            await publish_schemas(agents)
            await publish_seconds(agents, app, clock, range(6))
            await acknowledged(agents, 5)
            assert app._archive is not None
            assert await app._archive.write(flush=True)  # some of it is there
        archive = (tmp_path / "archive").rename(tmp_path / "away")
        (tmp_path / "archive").touch()
        again = App(made, clock)
        async with cut_off(again), client(made.mqtt.port) as agents:
            await agents.subscribe("laggard/1/site/ack/+", qos=1)
            await publish(agents, again, clock, range(6, 9))
            await acknowledged(agents, 8)
            await async_wait_until(lambda: again.view.counters().windows > 0)
            assert again.view.counters().archive_up is False
            durability = again.view.durability()
            assert durability is not None
            assert durability.whole
        last = App(made, clock)
        async with running(last), client(made.mqtt.port) as agents:
            await agents.subscribe("laggard/1/site/ack/+", qos=1)
            await publish(agents, last, clock, range(9, 12))
            await acknowledged(agents, 11)
            (tmp_path / "archive").unlink()
            archive.rename(tmp_path / "archive")
            assert last._archive is not None
            assert await last._archive.write(flush=True)
            assert last.view.counters().archive_up
            assert KEY in last.view.alarms()
        reader = ArchiveReader(tmp_path / "archive")
        assert len(reader.runs()) == 1
        taken = [(batch.schema.node, batch.seq) for _, batch in reader.batches()]
        assert sorted(taken) == [(node, seq) for node in NODES for seq in range(12)]
        replayed = list(ArchiveReplay(reader).judgements())
        assert replayed[-1].verdicts.score.tobytes() == last.view.judgements()[0].verdicts.score.tobytes()

    asyncio.run(story())


async def publish(agents: aiomqtt.Client, app: App, clock: HandClock, batches: range) -> None:
    """Every node's batches after a restart, which begins to count from 0."""
    for count, seq in enumerate(batches, 1):
        clock.ns = START + (5 * seq + 6) * SECOND
        for node in NODES:
            payload = wire.encode_envelope(envelope(node, seq))
            await agents.publish(topics.data_topic("site", "storage", node, "diskstats"), payload, qos=1)
        await async_wait_until(lambda: app.view.counters().samples == 5 * len(NODES) * count)  # noqa: B023


def test_it_is_not_ready_before_it_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        may_go_on = asyncio.Event()
        loop = asyncio.get_running_loop()

        def held_up(*_: object) -> tuple[object, None]:
            asyncio.run_coroutine_threadsafe(may_go_on.wait(), loop).result(LIMIT_SECONDS)
            return app._new_machine(), None

        monkeypatch.setattr("laggard_aggregator.engine.recovery.Recovery.load", held_up)
        made = replace(lasting(tmp_path), archive=None)
        app = App(made)
        stop = asyncio.Event()
        task = asyncio.create_task(app.run(stop))

        def answer(path: str) -> tuple[int, object]:
            try:
                with urllib.request.urlopen(app.url + path, timeout=LIMIT_SECONDS) as said:
                    return said.status, json.load(said)
            except urllib.error.HTTPError as exc:
                with exc:
                    return exc.code, json.load(exc)

        await async_wait_until(lambda: hasattr(app, "_http"))
        assert await asyncio.to_thread(answer, "/healthz") == (200, {"status": "ok"})
        assert await asyncio.to_thread(answer, "/readyz") == (
            503,
            {"ready": False, "reason": "not connected to the broker"},
        )
        may_go_on.set()
        await async_wait_until(lambda: app.view.ready)
        assert await asyncio.to_thread(answer, "/readyz") == (200, {"ready": True})
        stop.set()
        await task

    asyncio.run(story())


def test_what_the_archive_has_no_room_for_is_judged_and_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        made = settings(archive=tmp_path / "archive")
        app = App(made, HandClock(START + 6 * SECOND))
        async with running(app), client(made.mqtt.port) as agents:
            await publish_schemas(agents)
            payload = wire.encode_envelope(envelope(NODES[0], 0))
            topic = topics.data_topic("site", "storage", NODES[0], "diskstats")
            monkeypatch.setattr("laggard_aggregator.archive.write_queue.MAX_VALUE_BYTES", 4)
            for times in (1, 2):
                await agents.publish(topic, payload, qos=1)
                await async_wait_until(lambda: app.view.counters().archive_returned == times)  # noqa: B023
            assert (app.view.counters().duplicates, app.view.counters().samples) == (0, 0)
            assert app.view.groups()[0].name == "storage/diskstats"
            monkeypatch.undo()
            await agents.publish(topic, payload, qos=1)
            await async_wait_until(lambda: app.view.counters().samples == 5)
        assert [batch.seq for _, batch in ArchiveReader(tmp_path / "archive").batches()] == [0]

    asyncio.run(story())
