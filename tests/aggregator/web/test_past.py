"""Ranges of time on pages and in the API, over an archive that the product's writer wrote."""

import asyncio
import json
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from laggard_aggregator.app import App
from laggard_aggregator.archive.history import HistoryReader
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.log.entries import WindowClose
from laggard_aggregator.status import urls
from laggard_aggregator.web.app import make_app
from laggard_aggregator.web.pages import past
from laggard_aggregator.web.pages.past import Past, PastReader, PastUnavailableError
from laggard_common import wire
from laggard_common.wire import topics
from tests.aggregator.web.test_api_document import documented
from tests.aggregator.web.test_pages import Outline, text_of
from tests.aggregator.web.test_tables import check_every_table
from tests.support import aggregator as whole
from tests.support.builders import live_status
from tests.support.builders.history import (
    COMPONENTS,
    END,
    GROUP,
    MS,
    SLOW,
    SLOW_FROM,
    SLOW_MS,
    WINDOW,
    written,
)
from tests.support.clock import HandClock
from tests.support.wait import LIMIT_SECONDS, async_wait_until

BEGUN = END - 7200
RANGE = urls.TimeRange(BEGUN, END)
ASKED = f"from={BEGUN}&to={END}"
PAGES = (
    f"/component/{GROUP}/{SLOW}?{ASKED}",
    f"/component/{GROUP}/{SLOW}?{ASKED}&metric=await",
    f"/component/{GROUP}/gone-1/id?{ASKED}",
    f"/component/{GROUP}/{SLOW}?from=-1h",
    f"/component/{GROUP}/{SLOW}?from=tomorrow",
    f"/group/{GROUP}?{ASKED}",
    f"/node/oss-3?{ASKED}",
    f"/alarms?{ASKED}",
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("archive")
    written(directory)
    return directory


def site(*, known: bool = True) -> live_status.MadeView:
    """A site whose memory has one window of all components, or none yet."""
    group = replace(live_status.group(GROUP, len(COMPONENTS)), detect=DetectSettings(interval_seconds=15.0))
    n = len(COMPONENTS)
    judged = live_status.judgement(GROUP, COMPONENTS, [0] * n, [1.0] * n, [False] * n)
    nodes = (replace(live_status.site().nodes_[0], node="oss-3"),)
    view = live_status.MadeView(groups_=(group,), judgements_=(judged,), nodes_=nodes, now=END + 100.0)
    if known:
        view.history.judged([replace(judged, start=END - WINDOW, end=float(END))])
        view.history.judged([replace(judged, start=END - WINDOW / 2, end=END + WINDOW / 2)])
    return view


def ask(
    paths: Sequence[str], archive: Path | None, view: live_status.MadeView | None = None
) -> list[httpx.Response]:
    async def asked() -> list[httpx.Response]:
        transport = httpx.ASGITransport(make_app(view or site(), archive), raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://aggregator") as client:
            return [await client.get(path) for path in paths]

    return asyncio.run(asked())


def get(path: str, archive: Path | None, view: live_status.MadeView | None = None) -> str:
    (answer,) = ask([path], archive, view)
    assert answer.status_code == 200, answer.text
    return answer.text


def columns(page: str) -> dict[str, list[list[float | None]]]:
    """The data of each chart of the past by its name."""
    figures = [each for each in Outline(page).all("figure") if "data-height" in each]
    names = [text.partition("</figcaption>")[0] for text in page.split("<figcaption>")[1:]]
    names = [name.partition(" <span")[0] for name in names[: len(figures)]]
    return {name: json.loads(each["data-chart"] or "") for name, each in zip(names, figures, strict=True)}


@pytest.mark.parametrize("path", PAGES)
def test_a_page_of_a_range_is_well_formed(path: str, archive: Path) -> None:
    outline = Outline(ask([path], archive)[0].text)
    assert outline.headings[0] == 1
    ids = [attrs["id"] for _, attrs in outline.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    labels = {label.get("for") for label in outline.all("label")}
    assert all(each["id"] in labels for each in outline.all("input") if each.get("type") != "hidden")


def test_a_component_shows_latency_and_load_of_the_range(archive: Path) -> None:
    page = get(f"/component/{GROUP}/{SLOW}?{ASKED}", archive)
    found = columns(page)
    assert next(iter(found)) == "await"
    assert list(found)[1:] == [
        *("r await", "w await", "reads", "writes", "read throughput", "write throughput", "request size"),
        *("queue", "utilisation"),
    ]
    assert len({tuple(each[0]) for each in found.values()}) == 1  # one time axis
    ends, own, *band, hot = found["await"]
    assert ends[0] is not None
    assert ends[0] <= BEGUN + 120
    assert ends[-1] == END
    assert own[-1] == SLOW_MS
    assert [column[-1] for column in band] == [MS] * 5  # a straggler does not widen it
    assert next(at for at, value in zip(ends, hot, strict=True) if value is not None) == SLOW_FROM + 60
    assert set(filter(None, found["reads"][1])) == {100.0}  # it is not busier
    text = text_of(page)
    assert "Load: is it just busier? No. While it was anomalous it had 1.0× the operations" in text
    assert "each point is the mean of 60 s, the band that of 9 peers" in text
    assert "6 anomalous windows; its group was judged in 12" in text
    assert "data-still" in page


def from_root(link: str | None) -> str:
    """A relative link of a page, as a path from the root."""
    return "/" + (link or "").lstrip("./")


def test_a_page_without_a_range_reads_no_archive_and_says_where_load_is(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "HistoryReader", None)
    page = get(f"/component/{GROUP}/{SLOW}", archive)
    (section,) = (each for each in Outline(page).all("section") if each.get("id") == "past")
    since = re.fullmatch(rf"/component/{GROUP}/{SLOW}\?from=-(\d+)s", from_root(section["data-fetch"]))
    assert since is not None, "no longer than there are windows: a chart of 12 h has few points of an hour"
    assert 60 < int(since[1]) < 12 * 3600
    without = get(f"/component/{GROUP}/{SLOW}", None)
    assert "data-fetch" not in without
    assert "No archive is configured: [archive] in aggregator.toml keeps history and load." in text_of(
        without
    )


def test_the_picker_has_the_range_and_keeps_the_metric(archive: Path) -> None:
    outline = Outline(get(f"/component/{GROUP}/{SLOW}?from=-1h", archive))
    links = {from_root(each["href"]): each for each in outline.all("a")}
    path = f"/component/{GROUP}/{SLOW}"
    assert {f"{path}?from={ago}" for ago in ("-1h", "-12h", "-1d", "-1w")} <= set(links)
    assert links[f"{path}?from=-1h"]["aria-current"] == "true"
    start, end = (each for each in outline.all("input") if each.get("name") in ("from", "to"))
    assert (start["type"], end["value"]) == ("datetime-local", "")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", start["value"] or "")
    outline = Outline(get(f"{path}?from=2025-10-09T08:00Z&to=2025-10-09T08:30Z", archive))
    values = [each["value"] for each in outline.all("input") if each.get("name") in ("from", "to")]
    assert values == ["2025-10-09T08:00:00", "2025-10-09T08:30:00"], "as a browser's picker has them"


def test_without_an_archive_the_windows_in_memory_are_shown() -> None:
    page = get(f"/component/{GROUP}/{SLOW}?{ASKED}", None)
    text = text_of(page)
    assert "No archive is configured, so only windows in memory can be shown" in text
    assert "Windows and verdicts, newest first" in text
    assert text.count("like its peers") == 1  # the window that ends in the range
    old = text_of(get(f"/component/{GROUP}/{SLOW}?from=-300d&to=-299d", None))
    assert old.count("like its peers") == 2  # nothing of that time: what there is


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ("from=2025-10-09T08:30&to=2025-10-09T08:00", "The range ends before it begins."),
        ("from=2999-01-01", "The range begins in the future."),
        ("from=1&to=1760000000", "The range is longer than 400 days."),
        ("from=tomorrow", "A time is written as 2026-01-31T12:00, -12h or in epoch seconds."),
        ("from=1e308", "A time is written as"),
        ("from=" + "9" * 5000, "A time is written as"),
        ("from=-999999w", "The range is longer than 400 days."),
        ("from=%00%1b[31m", "A time is written as"),
        ("from=nan", "A time is written as"),
        ("from=<script>", "A time is written as"),
    ],
)
def test_absurd_ranges_are_said_in_a_sentence(asked: str, sentence: str, archive: Path) -> None:
    page, api = ask(
        [f"/component/{GROUP}/{SLOW}?{asked}", f"/api/v1/history?component={SLOW}&{asked}"], archive
    )
    assert page.status_code == 200
    assert sentence in text_of(page.text)
    assert "<script>&" not in page.text
    assert len(page.text) < 60_000
    assert api.status_code == 400
    assert api.json()["error"].casefold() in sentence.casefold() or sentence == "A time is written as"


def test_a_range_that_is_not_kept_is_said(archive: Path) -> None:
    text = text_of(get(f"/component/{GROUP}/{SLOW}?from=2025-06-01&to=2025-06-02", archive))
    assert "The archive has no data of it from 2025-06-01 00:00:00 to 2025-06-02 00:00:00 UTC." in text


def test_a_damaged_archive_is_said_and_the_rest_shown(tmp_path: Path) -> None:
    written(tmp_path)
    for part in sorted(tmp_path.glob("kind=counters/**/*.parquet"))[:2]:
        part.write_bytes(b"PAR1 no")
    page = get(f"/component/{GROUP}/{SLOW}?{ASKED}", tmp_path)
    assert "Left out, as unreadable: 2 files of the archive." in text_of(page)
    assert columns(page)["await"][1][-1] == SLOW_MS


def test_a_group_shows_its_stragglers_of_the_range(archive: Path) -> None:
    text = text_of(get(f"/group/{GROUP}?{ASKED}", archive))
    assert "9 components without an anomalous window in this range are not listed." in text
    assert SLOW in text
    assert "6 of 12" in text
    nothing = text_of(get(f"/group/{GROUP}?from=2025-06-01&to=2025-06-02", archive))
    assert "The archive has no data of it" in nothing


def test_a_node_shows_its_anomalous_components_of_the_range(archive: Path) -> None:
    page = get(f"/node/oss-3?{ASKED}", archive)
    text = text_of(page)
    assert "Anomalous from" in text
    assert f"{SLOW} {GROUP} await 4.0× 6 " in text
    links = [from_root(each["href"]) for each in Outline(page).all("a")]
    assert urls.component(GROUP, SLOW, "await", SLOW_FROM) in links
    quiet = text_of(get(f"/node/oss-3?from={BEGUN}&to={SLOW_FROM}", archive))
    assert "The archive has no anomalous window of the node or its components" in quiet


@pytest.mark.parametrize(
    ("path", "count"),
    [
        (f"/component/{GROUP}/{SLOW}?{ASKED}", 2),
        (f"/node/oss-3?{ASKED}", 2),
        (f"/alarms?{ASKED}", 1),
    ],
)
def test_every_table_of_a_range_sorts_and_is_a_file(path: str, count: int, archive: Path) -> None:
    check_every_table(path, count, lambda paths: ask(paths, archive))


def test_the_archive_alone_has_a_table_too(archive: Path) -> None:
    view = replace(site(known=False), judgements_=(), groups_=())
    path = f"/component/{GROUP}/{SLOW}?{ASKED}"
    check_every_table(path, 1, lambda paths: ask(paths, archive, view))


def test_alarms_of_a_range(archive: Path) -> None:
    text = text_of(get(f"/alarms?{ASKED}", archive))
    assert "Alarms from" in text
    assert SLOW in text
    none = text_of(get(f"/alarms?from={BEGUN}&to={SLOW_FROM}", archive))
    assert "No alarm was raised or cleared in this range." in none


def test_who_is_known_to_the_archive_alone_has_a_page(archive: Path) -> None:
    view = replace(site(known=False), judgements_=(), groups_=())
    here, nowhere, now = ask(
        [
            f"/component/{GROUP}/{SLOW}?{ASKED}",
            f"/component/{GROUP}/none?{ASKED}",
            f"/component/{GROUP}/{SLOW}",
        ],
        archive,
        view,
    )
    assert here.status_code == 200
    assert "It is not compared now" in text_of(here.text)
    assert "6 anomalous windows" in text_of(here.text)
    assert nowhere.status_code == 404
    assert "The archive has no data of it" in text_of(nowhere.text)
    assert now.status_code == 404
    assert f"/component/{GROUP}/{SLOW}?from=-12h" in [
        from_root(each["href"]) for each in Outline(now.text).all("a")
    ]


def test_the_api_has_the_same(archive: Path) -> None:
    by_id, by_group, unknown, missing, off = (
        *ask(
            [
                f"/api/v1/history?component={SLOW}&{ASKED}",
                f"/api/v1/history?component={SLOW}&group={GROUP}&{ASKED}",
                f"/api/v1/history?component=none&{ASKED}",
                f"/api/v1/history?{ASKED}",
            ],
            archive,
        ),
        *ask([f"/api/v1/history?component={SLOW}&{ASKED}"], None),
    )
    assert by_id.json() == by_group.json()
    got = by_id.json()
    assert set(got) == documented("/api/v1/history")
    assert (got["group"], got["component"], got["from"], got["to"]) == (GROUP, SLOW, BEGUN, END)
    assert (got["step_seconds"], got["peers"], got["notes"]) == (60.0, 9, [])
    (latency,) = got["metrics"]
    assert (latency["metric"], latency["unit"], latency["values"][-1], latency["p50"][-1]) == (
        "await",
        "ms",
        SLOW_MS,
        MS,
    )
    assert len(got["ends"]) == len(latency["values"])
    assert [each["metric"] for each in got["load"]][2:4] == ["reads", "writes"]
    assert [each["end"] for each in got["anomalous_windows"]] == [
        SLOW_FROM + at * WINDOW for at in range(1, 7)
    ]
    assert (unknown.status_code, missing.status_code, off.status_code) == (404, 400, 503)
    assert "No archive is configured" in off.json()["error"]


def test_few_read_at_a_time_and_the_loop_goes_on(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go, reading, ended = threading.Event(), [], []

    def slow(self: HistoryReader, *_: object) -> list[object]:
        reading.append(threading.get_ident())
        go.wait(LIMIT_SECONDS)
        ended.append(threading.get_ident())
        return []

    monkeypatch.setattr(HistoryReader, "alarms", slow)
    monkeypatch.setattr(past, "MAX_WAITING", 4)
    monkeypatch.setattr(past, "ANSWER_SECONDS", 0.5)

    async def story() -> list[object]:
        reader = PastReader(site(), archive)
        ranges = [urls.TimeRange(BEGUN - 3600 * at, END) for at in range(6)]
        answers = asyncio.gather(*(reader.alarms(each) for each in ranges), return_exceptions=True)
        ticks = 0
        while not answers.done():  # while reading waits: the loop goes on, and no answer waits for it
            await asyncio.sleep(0.01)
            ticks += 1
        assert ticks > 1
        assert not go.is_set()
        assert not ended
        go.set()
        monkeypatch.setattr(past, "ANSWER_SECONDS", 30.0)
        again = await reader.alarms(ranges[0])
        assert isinstance(again, Past)
        return list(await answers)

    found = asyncio.run(story())
    assert all(isinstance(each, PastUnavailableError) for each in found)
    assert sum("Too many ranges" in str(each) for each in found) == 2
    assert sum("did not answer" in str(each) for each in found) == 4
    assert len(set(reading)) <= past.MAX_READING


def test_a_range_is_read_once(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def counted(*args: object) -> HistoryReader:
        made.append(args)
        return HistoryReader(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(past, "HistoryReader", counted)
    ask([f"/component/{GROUP}/{SLOW}?{ASKED}", f"/component/{GROUP}/{SLOW}?{ASKED}&metric=await"], archive)
    assert len(made) == 1


def test_history_is_there_again_after_a_restart(tmp_path: Path) -> None:
    """The memory of a second aggregator has no window; the archive has those of the first."""
    component = f"/component/storage%2Fdiskstats/{whole.SLOW}/wwn"

    async def story() -> None:
        clock = HandClock(whole.START)
        made = whole.settings(archive=tmp_path)
        first = App(made, clock)
        async with whole.running(first), whole.client(made.mqtt.port) as agents:
            await whole.publish_schemas(agents)
            await whole.publish_seconds(agents, first, clock, range(12))
        second = App(made, clock)
        async with (
            whole.running(second),
            httpx.AsyncClient(base_url=second.url, timeout=LIMIT_SECONDS) as http,
        ):
            start = whole.START / 1e9
            asked = f"?from={start:.0f}&to={start + 62:.0f}"
            before = await http.get(component)
            assert before.status_code == 404  # nobody has sent anything yet
            answer = await http.get(component + asked)
            assert answer.status_code == 200
            assert "anomalous windows" in text_of(answer.text)
            async with whole.client(made.mqtt.port) as agents:
                await whole.publish_schemas(agents)
                clock.ns = whole.START + 66 * 10**9
                for node in whole.NODES:
                    topic = topics.data_topic("site", "storage", node, "diskstats")
                    await agents.publish(topic, wire.encode_envelope(whole.envelope(node, 12)), qos=1)
                await async_wait_until(lambda: len(second.view.groups()) == 1)
                answer = await http.get(component + asked + "&page=1")
            found = columns(answer.text)
            own = np.array([value for value in found["await"][1] if value is not None])
            assert own.size > 30
            assert np.median(own) == pytest.approx(50, rel=0.1)
            assert "reads" in found

    asyncio.run(story())


def test_the_alarms_of_a_range_have_beside_them_what_else_changed(tmp_path: Path, archive: Path) -> None:
    quiet = text_of(get(f"/alarms?{ASKED}", archive))
    assert "No group changed its size, and no component was drained or replaced." in quiet
    assert "It does not keep silences that have ended" in quiet
    before = text_of(get(f"/alarms?from={BEGUN - 7200}&to={BEGUN - 3600}", archive))
    assert "Not known: the archive has no windows of this time." in before, "which is not: nothing changed"
    writer = written(tmp_path)
    gone, left = COMPONENTS[0], COMPONENTS[1:]
    judged = live_status.judgement(GROUP, left, [0] * len(left), [1.0] * len(left), [False] * len(left))
    start = END + WINDOW
    writer.judgement(replace(judged, start=float(END), end=float(start)))
    close = WindowClose(10_000, GROUP, float(END), float(start), start + 5.0)
    writer.window_close(replace(close, drained=(gone,), restart=(left[0],)))
    writer.flush()
    view = site()
    view.now = start + 100.0
    text = text_of(get(f"/alarms?from={BEGUN}&to={start + 60}", tmp_path, view))
    assert f"{GROUP}: 9 components compared, before 10" in text
    assert f"{GROUP}: {gone} drained" in text
    assert f"{GROUP}: {left[0]} replaced or forgotten" in text
