"""What alarms did: in the archive, and since."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from laggard_aggregator.alarms.alarms import AlarmEvent
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.log.entries import WindowClose
from laggard_aggregator.status.window_history import WindowHistory
from laggard_aggregator.web.pages import alarm_log as past
from laggard_aggregator.web.pages.alarm_log import AlarmLog, Event
from tests.support.builders import live_status

DAY = 86_400.0


def raised(component: str, at: float, kind: str = "raised") -> Judgement:
    judged = live_status.judgement("luns", (component,), [3], [4.0], [True])
    alarm = replace(live_status.alarm("luns", component), since=at - 300, raised_at=at, updated_at=at)
    transition = AlarmEvent("raised" if kind == "raised" else "cleared", alarm, at)
    return replace(judged, start=at - 60, end=at, transitions=(transition,))


def written(directory: Path, *judgements: Judgement) -> None:
    writer = ArchiveWriter(directory, "site", round(live_status.NOW * 1e9))
    for ordinal, judged in enumerate(judgements):
        writer.window_close(WindowClose(ordinal, judged.group, judged.start, judged.end, judged.end))
        writer.judgement(judged)
    writer.flush()


def events(past: AlarmLog, history: WindowHistory) -> list[Event]:
    return list(asyncio.run(past.events(history, live_status.NOW)))


def test_what_is_archived_and_what_came_since_are_one_story(tmp_path: Path) -> None:
    first, second = raised("a", live_status.NOW - 600), raised("a", live_status.NOW - 60, "cleared")
    written(tmp_path, first, second)
    history = WindowHistory()
    history.judged([second, raised("b", live_status.NOW - 30)])
    found = events(AlarmLog(tmp_path), history)
    assert [(event.component, event.kind, event.at) for event in found] == [
        ("b", "raised", live_status.NOW - 30),
        ("a", "cleared", live_status.NOW - 60),
        ("a", "raised", live_status.NOW - 600),
    ]
    assert found[2].worst_severity == 6.0


def test_it_is_put_together_anew_only_when_something_happened() -> None:
    history, known = WindowHistory(), AlarmLog(None)
    history.judged([raised("a", live_status.NOW)])
    first = asyncio.run(known.events(history, live_status.NOW))
    assert asyncio.run(known.events(history.frozen(), live_status.NOW + 1)) is first
    history.judged([raised("b", live_status.NOW - 1)])
    assert [event.component for event in events(known, history)] == ["a", "b"]


def test_without_an_archive_there_is_what_came_since_the_start() -> None:
    history = WindowHistory()
    history.judged([raised("a", live_status.NOW)])
    assert [event.component for event in events(AlarmLog(None), history)] == ["a"]


def test_an_archive_that_cannot_be_read_keeps_no_page_from_being_shown(tmp_path: Path) -> None:
    assert events(AlarmLog(tmp_path / "none"), WindowHistory()) == []
    written(tmp_path, raised("a", live_status.NOW))
    (part,) = tmp_path.glob("kind=alarms/**/*.parquet")
    part.write_bytes(b"PAR1 no")
    assert events(AlarmLog(tmp_path), WindowHistory()) == []


def test_what_was_read_stays_when_the_archive_cannot_be_read_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "ARCHIVE_KEPT_SECONDS", 0.0)
    written(tmp_path, raised("a", live_status.NOW))
    known = AlarmLog(tmp_path)
    assert [event.component for event in events(known, WindowHistory())] == ["a"]
    (part,) = tmp_path.glob("kind=alarms/**/*.parquet")
    part.unlink()
    part.with_name("20260101T000000Z-000001-000002.parquet").write_bytes(b"half")
    assert [event.component for event in events(known, WindowHistory())] == ["a"]
