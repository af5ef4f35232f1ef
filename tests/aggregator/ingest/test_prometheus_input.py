"""`[[prometheus]]`: scrapes of a real server are judged as batches of agents are, each once."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.builders.prometheus_blocks import Exported, Slow, serving
from tests.support.live_scrapes import live_scrapes
from tests.support.query_server import Answers, answering

HOUR = 3600.0
needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")), reason="needs prometheus and promtool"
)


@pytest.fixture
def end() -> float:
    return time.time() // 7200 * 7200 - 4 * HOUR  # blocks of the past, at their borders


@needs_prometheus
def test_the_slow_disk_gets_the_only_alarm(end: float, tmp_path: Path) -> None:
    start = end - 3 * HOUR
    exported = Exported(
        start,
        end,
        slow=(Slow(1, 2, 3.0, start + HOUR),),
        restarts={0: start + 1.5 * HOUR, 1: start + 2 * HOUR},
        gaps={2: (start + HOUR, start + 1.2 * HOUR)},
    )
    with serving(exported, tmp_path) as url:
        live = live_scrapes(url, start + 60)
        live.run(end)
    assert list(live.raised) == ["oss1/sdc"]
    assert [event.kind for _, event in live.events] == ["raised"]
    assert live.events[0][0] - (start + HOUR) < 1.2 * HOUR
    assert live.input.view.failures == 0
    assert {batch.schema.source for batch in live.batches} == {"diskstats"}
    assert list(live.machine.groups) == ["storage/diskstats/X1_hdd"]


@needs_prometheus
def test_every_scrape_is_admitted_once_with_its_time(end: float, tmp_path: Path) -> None:
    start = end - HOUR
    exported = Exported(start, end, hosts=2, disks=2, replicas=("a", "b"))
    with serving(exported, tmp_path) as url:
        live = live_scrapes(url, start + 300)
        live.run(start + 900)
        live.restart()  # 10 minutes later
        live.now = start + 1500
        live.run(start + 1800)
    ticks = sorted(
        int(batch.counters.tick_ns[0]) // 10**9 for batch in live.batches if batch.schema.node == "oss0"
    )
    assert ticks == list(range(int(start) + 300, int(start) + 1801, 15))
    assert live.machine.admission.counts.duplicates == live.machine.admission.counts.gaps == 0
    read = np.array([batch.counters.read_ns[0] for batch in live.batches]) / 1e9
    assert set(np.round((read - start) % 15, 3)) == {0.0}
    assert live.input.view.ambiguous == 4


START = 1_764_000_000.0


def test_a_server_that_fails_is_told_and_its_backlog_read_up_to_the_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = Answers(fails=True)
    with answering(answers) as url, caplog.at_level("INFO"):
        live = live_scrapes(url, START, "backlog_seconds = 60.0")
        view = live.input.view
        live.run(START + 60)
        assert (view.polls, view.failures, view.readings) == (4, 4, 0)
        assert view.failure == f"{url}: overloaded"
        answers.fails = False
        live.run(START + 120)
        answers.fails = True
        live.run(START + 300)
        answers.fails = False
        live.run(START + 330)
    levels = [record.levelname for record in caplog.records if "prometheus" in record.name]
    assert levels == ["WARNING", "INFO", "WARNING", "INFO", "WARNING"]
    assert "skipped 120 s of data that are older than backlog_seconds" in caplog.text
    ticks = [int(batch.counters.tick_ns[0]) / 1e9 - START for batch in live.batches]
    assert ticks == [60, 75, 90, 105, 120, 255, 270, 285, 300, 315, 330]
    assert view.lost_seconds == 120
    assert (view.failure, view.newest) == ("", START + 330)


@pytest.mark.parametrize("first", [True, False])
def test_the_other_of_two_servers_is_asked(first: bool) -> None:
    with answering(Answers()) as url:
        live = live_scrapes(url, START)
        urls = (url, "http://127.0.0.1:1") if first else ("http://127.0.0.1:1", url)
        table = replace(live.settings.prometheus[0], urls=urls)
        live.settings = replace(live.settings, prometheus=(table,))
        live.restart()
        live.run(START + 60)
    assert live.input.view.failures == 0
    assert len(live.batches) == 5


def test_a_server_whose_answer_never_ends_keeps_nobody_from_the_other() -> None:
    slow = Answers(trickles=True)
    with answering(slow) as bad, answering(Answers()) as url:
        try:
            live = live_scrapes(url, START)
            table = replace(live.settings.prometheus[0], urls=(bad, url), timeout_seconds=0.2)
            live.settings = replace(live.settings, prometheus=(table,))
            live.restart()
            live.run(START + 15)
        finally:
            slow.trickles = False
    assert live.input.view.failures == 0
    assert len(live.batches) == 2


def test_what_no_counter_has_is_left_out_and_counted() -> None:
    reads, writes = "node_disk_reads_completed_total", "node_disk_writes_completed_total"
    answers = Answers(values={reads: "NaN", writes: "-1"})  # NaN: a stale marker, no value
    answers.disks += [
        {"instance": "oss0:9100", "device": "s\0b"},
        {"instance": "[2001:db8::1]:9100", "device": "sdc"},
    ]
    with answering(answers) as url:
        live = live_scrapes(url, START)
        live.run(START + 15)
    named = {
        (batch.schema.node, component.name) for batch in live.batches for component in batch.schema.components
    }
    assert named == {("oss0", "sda"), ("2001:db8::1", "sdc")}
    assert live.input.view.left_out == 2 * 2 + 1
    for batch in live.batches:
        assert batch.counters.present is not None
        known = dict(zip((one.name for one in batch.schema.fields), batch.counters.present[0], strict=True))
        assert not known["rd_ios"]
        assert not known["wr_ios"]
        assert known["rd_ms"]


def test_a_counter_without_which_nothing_is_judged_is_missed_once(caplog: pytest.LogCaptureFixture) -> None:
    busy, discards = "node_disk_io_time_seconds_total", "node_disk_discards_completed_total"
    with answering(Answers(lacks=(busy, discards))) as url, caplog.at_level("WARNING"):
        live = live_scrapes(url, START)
        live.run(START + 60)
    assert caplog.messages == [f"prometheus prometheus: no series of {busy}"]


def test_a_component_keeps_its_series_while_it_lasts() -> None:
    disks = [{"instance": "oss0:9100", "device": "sda", "replica": name} for name in ("a", "b")]
    answers = Answers(disks=disks)
    with answering(answers) as url:
        live = live_scrapes(url, START)
        live.run(START + 60)
        assert live.input.view.ambiguous == 1
        answers.disks = disks[1:]
        live.run(START + 120)
    assert live.input.view.ambiguous == 0
    ticks = [int(batch.counters.tick_ns[0]) / 1e9 - START for batch in live.batches]
    assert ticks == list(range(0, 121, 15))
    assert sum(store.counts.resets for store in live.machine.stores.values()) == 0


def test_credentials_come_from_files(tmp_path: Path) -> None:
    token, answers = tmp_path / "token", Answers()
    token.write_text("secret\n")
    token.chmod(0o600)
    with answering(answers) as url:
        live = live_scrapes(url, START, f'token_file = "{token}"', 'tenant = "site-1"')
        live.run(START + 15)
        assert answers.headers["Authorization"] == "Bearer secret"
        assert answers.headers["X-Scope-OrgID"] == "site-1"
        token.chmod(0o644)
        live.run(START + 30)
    assert "token_file: " in live.input.view.failure
    assert "may be read or written by everyone" in live.input.view.failure
    assert "secret" not in live.input.view.failure
