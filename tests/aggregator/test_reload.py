"""SIGHUP: a real aggregator goes on with other settings and keeps what it knows."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from laggard_aggregator.app import App
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.offline.archive_replay import ArchiveReplay
from laggard_aggregator.settings.aggregator import AggregatorSettings, DetectTable, GroupTable, StateTable
from laggard_common import wire
from laggard_common.wire import topics
from tests.aggregator.test_app_state import KEY
from tests.support.aggregator import (
    NODES,
    START,
    client,
    envelope,
    publish_schemas,
    publish_seconds,
    running,
    settings,
)
from tests.support.builders.batches import SECOND
from tests.support.clock import HandClock
from tests.support.ports import free_port
from tests.support.processes import started
from tests.support.wait import LIMIT_SECONDS, async_wait_until


async def go_on(app: App, clock: HandClock, port: int, batches: range) -> None:
    async with client(port) as agents:
        await publish_schemas(agents)
        for seq in batches:
            clock.ns = START + (5 * seq + 6) * SECOND
            before = app.view.counters().samples
            for node in NODES:
                payload = wire.encode_envelope(envelope(node, seq))
                await agents.publish(topics.data_topic("site", "storage", node, "diskstats"), payload, qos=1)
            await async_wait_until(lambda: app.view.counters().samples == before + 5 * len(NODES))  # noqa: B023
        await async_wait_until(lambda: app.view.counters().windows >= 2)


@pytest.mark.parametrize("lasting", [True, False], ids=["with state", "without"])
def test_another_in_its_place_knows_what_it_knew(tmp_path: Path, lasting: bool) -> None:
    async def story() -> None:
        clock = HandClock(START)
        state = StateTable(tmp_path / "state", catch_up_seconds=0.0) if lasting else None
        made = settings(archive=tmp_path / "archive", state=state)
        app = App(made, clock)
        async with running(app):
            async with client(made.mqtt.port) as agents:
                await publish_schemas(agents)
                await publish_seconds(agents, app, clock, range(12))
            await async_wait_until(
                lambda: app.view.judgements()[0].end >= START / SECOND + 50
            )  # the last to close
            alarm = app.view.alarms()[KEY]
        more = replace(made, group=(GroupTable("others", components="nobody/.*"),))
        again = App(more, clock, before=app)
        windows = app.view.history.columns(KEY[0], KEY[2])
        assert windows
        async with running(again):
            assert again.view.alarms() == {KEY: alarm}
            assert again.view.history.columns(KEY[0], KEY[2])[: len(windows)] == windows
            await go_on(again, clock, made.mqtt.port, range(12, 18))
            assert again.view.alarms()[KEY].since == alarm.since
            assert again.view.counters().gaps == again.view.counters().duplicates == 0
        reader = ArchiveReader(tmp_path / "archive")
        taken = sorted((batch.schema.node, batch.seq) for _, batch in reader.batches())
        assert taken == [(node, seq) for node in NODES for seq in range(18)]
        assert [t.kind for j in ArchiveReplay(reader).judgements() for t in j.transitions].count(
            "cleared"
        ) == 0

    asyncio.run(story())


def test_a_group_that_is_judged_otherwise_starts_afresh(tmp_path: Path) -> None:
    async def story() -> None:
        clock = HandClock(START)
        made = settings(archive=tmp_path / "archive")
        app = App(made, clock)
        async with running(app):
            async with client(made.mqtt.port) as agents:
                await publish_schemas(agents)
                await publish_seconds(agents, app, clock, range(12))
            await async_wait_until(lambda: KEY in app.view.alarms())
        other = DetectTable(interval_seconds=1.0, window_samples=20, shift_samples=10, confirm=3)
        again = App(replace(made, detect=other), clock, before=app)
        async with running(again):
            assert again.view.alarms() == {}
            assert {node.node for node in again.view.nodes()} == set(NODES)

    asyncio.run(story())


def written(path: Path, made: AggregatorSettings, http: int, *more: str) -> None:
    state = json.dumps(str(path.parent / "state"))
    lines = [
        f"[mqtt]\nembedded = true\nport = {made.mqtt.port}",
        f'[http]\nlisten = "127.0.0.1:{http}"',
        f"[state]\ndirectory = {state}\ncatch_up_seconds = 0.0",
        *more,
    ]
    path.write_text("\n".join(lines))


def test_a_daemon_takes_good_files_and_refuses_bad_ones(tmp_path: Path) -> None:
    made, path, (first, second) = settings(), tmp_path / "aggregator.toml", (free_port(), free_port())
    taken = made.mqtt.port
    written(path, made, first)
    command = [sys.executable, "-m", "laggard_aggregator.cli.daemon", "--config", path]

    def said(pattern: str) -> str:
        assert daemon.stderr is not None
        for line in daemon.stderr:
            if re.search(pattern, line):
                return str(line)
        raise AssertionError(f"it ended before it said {pattern}")

    with started(command, stderr=subprocess.PIPE, text=True) as daemon:
        said(f"metrics at http://127.0.0.1:{first}/metrics")
        said("state: restored")
        path.write_text("sitee = 'x'\n")
        daemon.send_signal(signal.SIGHUP)
        assert "sitee: unknown key" in said("configuration rejected")
        written(path, made, taken)  # the broker has it
        daemon.send_signal(signal.SIGHUP)
        said("configuration reloaded")
        assert "the port is taken" in said("going back to the previous one|Error")
        said(f"metrics at http://127.0.0.1:{first}/metrics")
        said("state: restored")
        written(path, made, second)
        daemon.send_signal(signal.SIGHUP)
        said(f"metrics at http://127.0.0.1:{second}/metrics")
        said("state: restored")
        daemon.send_signal(signal.SIGTERM)
        assert daemon.stderr is not None
        rest = daemon.stderr.read()
        assert daemon.wait(LIMIT_SECONDS) == 0
        assert "Traceback" not in rest
