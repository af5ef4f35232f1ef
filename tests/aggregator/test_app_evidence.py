"""Errors of a disk beside its alarm, from a node's batches to API, page and archive."""

import asyncio
import json
import urllib.request
from pathlib import Path

from laggard_aggregator.app import App
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.status.urls import component
from laggard_common import wire
from laggard_common.wire import Envelope, Kind, codec, topics
from laggard_common.wire.schema import Component, Field, Schema
from tests.support.aggregator import (
    SLOW,
    START,
    client,
    publish_schemas,
    publish_seconds,
    running,
    settings,
)
from tests.support.builders.batches import SECOND
from tests.support.clock import HandClock
from tests.support.wait import LIMIT_SECONDS, async_wait_until

ERRORS = Schema(
    SLOW,
    "disk_errors",
    b"e" * 16,
    1,
    SECOND,
    5,
    (Field("errors"), Field("timeouts")),
    (Component("sda", "sda"),),
)


def errors(seq: int, row: list[int]) -> bytes:
    """A batch of one tick."""
    payload = codec.Encoder().encode([0], [[row]], [0])
    return wire.encode_envelope(
        Envelope(
            kind=Kind.COUNTERS,
            node=SLOW,
            source=ERRORS.source,
            stream=ERRORS.stream,
            seq=seq,
            schema_epoch=1,
            t0_ns=START + (60 * seq + 1) * SECOND,
            dt_ns=SECOND,
            n=1,
            codec=codec.DELTA_ZSTD,
            payload=payload,
        )
    )


def got(url: str) -> str:
    with urllib.request.urlopen(url, timeout=LIMIT_SECONDS) as answer:
        text: str = answer.read().decode()
        return text


def test_from_a_batch_to_the_page(tmp_path: Path) -> None:
    async def story() -> None:
        clock = HandClock(START)
        made = settings(archive=tmp_path)
        app = App(made, clock=clock)
        async with running(app), client(made.mqtt.port) as agents:
            await publish_schemas(agents)
            await publish_seconds(agents, app, clock, range(12))
            assert app.view.alarms()
            before = app.view.counters().samples
            schema = wire.encode_schema(ERRORS)
            await agents.publish(topics.schema_topic("site", "storage", SLOW, ERRORS.source), schema, qos=1)
            for seq, row in enumerate(([40, 0], [52, 3])):
                topic = topics.data_topic("site", "storage", SLOW, ERRORS.source)
                await agents.publish(topic, errors(seq, row), qos=1)
            await async_wait_until(lambda: app.view.counters().samples == before + 2)
            answer = json.loads(await asyncio.to_thread(got, f"{app.url}/api/v1/stragglers"))
            rows = [row for row in answer["stragglers"] if row["component"] == f"{SLOW}/wwn"]
            assert rows
            assert all(
                row["beside"] == ["12 failed commands, 3 timeouts since 2027-01-15 08:01 UTC: replace it"]
                for row in rows
            )
            page = await asyncio.to_thread(got, f"{app.url}{component('storage/diskstats', f'{SLOW}/wwn')}")
            assert "Beside it: 12 failed commands, 3 timeouts since" in page
            assert len(app.view.groups()) == 1  # nothing is compared

    asyncio.run(story())
    stored = [b for _, b in ArchiveReader(tmp_path).batches() if b.schema.source == ERRORS.source]
    assert [batch.counters.values[-1, 0].tolist() for batch in stored] == [[40, 0], [52, 3]]
