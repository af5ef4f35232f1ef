"""The whole aggregator with a Prometheus server as its only input, over an outage of both."""

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path

from laggard_aggregator.app import App
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.settings.aggregator import BrokerSettings, StateTable
from laggard_aggregator.settings.prometheus import PrometheusTable
from tests.support.aggregator import running, settings
from tests.support.query_server import Answers, answering
from tests.support.wait import LIMIT_SECONDS, async_wait_until


def ready(url: str) -> tuple[int, object]:
    """Status and document of `/readyz`."""
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=LIMIT_SECONDS) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_a_restart_and_a_failing_server_cost_no_scrape_and_double_none(tmp_path: Path) -> None:
    answers = Answers(scrape_seconds=1.0)

    async def story(url: str) -> None:
        table = PrometheusTable((url,), ("node_exporter",), name="main", scrape_seconds=1.0)
        made = settings(
            archive=tmp_path / "archive",
            state=StateTable(tmp_path / "state"),
            mqtt=BrokerSettings(enabled=False),
            prometheus=(table,),
        )
        app = App(made)
        async with running(app):
            view = app.view.scrapes["main"]
            await async_wait_until(lambda: view.readings >= 3)
            assert await asyncio.to_thread(ready, app.url) == (200, {"ready": True})
            answers.fails = True
            await async_wait_until(lambda: view.failures > 1)
            code, document = await asyncio.to_thread(ready, app.url)
            assert (code, document) == (503, {"ready": False, "reason": "not connected to prometheus main"})
            answers.fails = False
            await async_wait_until(lambda: not view.failure)
        await asyncio.sleep(2)  # scrapes go on while the aggregator is away
        app = App(made)
        async with running(app):
            await async_wait_until(lambda: app.view.scrapes["main"].readings >= 3)
            assert app.view.counters().gaps == app.view.counters().two_streams == 0

    with answering(answers) as url:
        asyncio.run(story(url))
    batches = list(ArchiveReader(tmp_path / "archive").batches())
    ticks = [int(tick) // 10**9 for _, batch in batches for tick in batch.counters.tick_ns]
    assert ticks == list(range(ticks[0], ticks[0] + len(ticks)))
    assert len(ticks) >= 8
