"""The aggregator's clock is set to a wrong time: verdicts go on, and an archive replays to the same."""

import asyncio
from pathlib import Path

import pytest

from laggard_aggregator.app import App
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.offline.archive_replay import ArchiveReplay
from laggard_aggregator.runtime import loops
from laggard_aggregator.status.view import failing
from laggard_common import wire
from laggard_common.wire import topics
from tests.aggregator.test_app_state import KEY, cut_off, lasting
from tests.support.aggregator import NODES, START, client, envelope, publish_schemas, publish_seconds, running
from tests.support.builders.batches import SECOND
from tests.support.clock import HandClock
from tests.support.wait import async_wait_until

HOURS_NS = 7200 * SECOND


class SteppedClock(HandClock):
    """The wall clock is ahead by `ahead_ns`."""

    ahead_ns = 0

    def wall_ns(self) -> int:
        return self.ns + self.ahead_ns


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real seconds pass between batches here, five of the test's clock."""
    monkeypatch.setattr(loops, "ACK_SECONDS", 0.02)


async def publish(to: object, app: App, clock: HandClock, seqs: range) -> None:
    """Every node's batches, five seconds apart; the clock is checked and windows are closed in between."""
    for seq in seqs:
        clock.ns = START + (5 * seq + 6) * SECOND
        before = app.view.counters().messages
        for node in NODES:
            payload = wire.encode_envelope(envelope(node, seq))
            await to.publish(topics.data_topic("site", "storage", node, "diskstats"), payload, qos=1)  # type: ignore[attr-defined]
        await async_wait_until(lambda: app.view.counters().messages == before + len(NODES))  # noqa: B023
        await async_wait_until(lambda: app._clock._checked_ns == clock.ns)
        passes = app._windows.iterations
        await async_wait_until(lambda: app._windows.iterations > passes + 1)  # noqa: B023


def assert_replays(tmp_path: Path, app: App, batches: int) -> None:
    """Every batch is in the archive once, and the archive gives the last verdicts and one alarm."""
    reader = ArchiveReader(tmp_path / "archive")
    assert len(reader.runs()) == 1
    found = [(batch.schema.node, batch.seq) for _, batch in reader.batches()]
    assert sorted(found) == [(node, seq) for node in NODES for seq in range(batches)]
    replayed = list(ArchiveReplay(reader).judgements())
    last = app.view.judgements()[0]
    assert replayed[-1].end == last.end
    assert replayed[-1].verdicts.score.tobytes() == last.verdicts.score.tobytes()
    assert [t.kind for j in replayed for t in j.transitions] == ["raised"]


@pytest.mark.parametrize("step_ns", [HOURS_NS, -HOURS_NS, 400 * 86_400 * SECOND])
def test_verdicts_go_on_when_the_clock_steps(step_ns: int, tmp_path: Path) -> None:
    async def story() -> None:
        clock = SteppedClock(START)
        app = App(lasting(tmp_path), clock)
        async with running(app), client(app._settings.mqtt.port) as agents:
            await publish_schemas(agents)
            await publish_seconds(agents, app, clock, range(12))
            await async_wait_until(lambda: KEY in app.view.alarms())
            clock.ahead_ns = step_ns
            await publish(agents, app, clock, range(12, 18))
            # two windows of ten seconds later at most
            await async_wait_until(lambda: app.view.judgements()[0].end * SECOND >= START + 70 * SECOND)
            counters = app.view.counters()
            assert (counters.late_samples, counters.clock_steps) == (0, 1)
            assert counters.clock_difference_seconds == step_ns / SECOND
            assert "clock" in failing(counters, app.view.durability())
            clock.ahead_ns = 0
            await publish(agents, app, clock, range(18, 20))
            await async_wait_until(lambda: app.view.counters().clock_steps == 2)
            assert not failing(app.view.counters(), app.view.durability())
        assert_replays(tmp_path, app, 20)

    asyncio.run(story())


@pytest.mark.parametrize("step_ns", [HOURS_NS, -HOURS_NS, 90 * 86_400 * SECOND])
def test_a_start_with_a_wrong_clock_follows_the_nodes(step_ns: int, tmp_path: Path) -> None:
    """The first windows may be closed by the wrong clock; groups then go on at the time of the nodes."""

    async def story() -> None:
        clock = SteppedClock(START)
        made = lasting(tmp_path)
        app = App(made, clock)
        async with cut_off(app), client(made.mqtt.port) as agents:
            await publish_schemas(agents)
            await publish_seconds(agents, app, clock, range(12))
            await async_wait_until(lambda: KEY in app.view.alarms())
            alarm = app.view.alarms()[KEY]
            await app._archive.write(flush=True)  # type: ignore[union-attr]
        clock.ahead_ns = step_ns
        again = App(made, clock)
        async with running(again), client(made.mqtt.port) as agents:
            await publish(agents, again, clock, range(12, 24))
            await async_wait_until(lambda: again.view.judgements()[0].end * SECOND >= START + 100 * SECOND)
            assert again.view.alarms()[KEY].since == alarm.since
            assert again.view.counters().clock_difference_seconds == pytest.approx(step_ns / SECOND, abs=2)
        assert_replays(tmp_path, again, 24)
        clock.ahead_ns = 0
        again = App(made, clock)
        async with cut_off(again), client(made.mqtt.port) as agents:
            await publish(agents, again, clock, range(24, 28))
            await again._archive.write(flush=True)  # type: ignore[union-attr]
        again = App(made, clock)
        async with running(again), client(made.mqtt.port) as agents:
            await publish(agents, again, clock, range(28, 32))
        assert_replays(tmp_path, again, 32)

    asyncio.run(story())


def test_closes_in_the_future_of_an_earlier_version_are_taken_back(tmp_path: Path) -> None:
    """It followed a step of two hours, closed windows by it, and was killed."""

    async def story() -> None:
        clock = SteppedClock(START)
        made = lasting(tmp_path)
        app = App(made, clock)
        async with cut_off(app), client(made.mqtt.port) as agents:
            await publish_schemas(agents)
            await publish_seconds(agents, app, clock, range(12))
            await async_wait_until(lambda: KEY in app.view.alarms())
            clock.ns += HOURS_NS  # both clocks: nothing tells it
            closed = app.view.counters().windows
            await async_wait_until(lambda: app.view.counters().windows > closed + 1)
            assert app._recovery is not None
            await app._recovery.journal.commit()
        clock.ns -= HOURS_NS
        again = App(made, clock)
        async with running(again), client(made.mqtt.port) as agents:
            assert again._machine.windows.ahead(clock.ns)
            await publish(agents, again, clock, range(12, 24))
            await async_wait_until(lambda: again.view.judgements()[0].end * SECOND >= START + 100 * SECOND)
            assert KEY in again.view.alarms()
            assert again.view.counters().late_samples <= 2 * 5 * len(NODES)  # before they were heard
        assert_replays(tmp_path, again, 24)

    asyncio.run(story())
