"""Sentences, grades and order: a stalled aggregator, an empty site, slight stragglers, slow nodes, maps."""

import re
from dataclasses import replace
from urllib.parse import urljoin

import numpy as np
import pytest

from laggard_aggregator.detect.interface import DutyCycle, Verdicts
from laggard_aggregator.status import formatting
from laggard_aggregator.status.window_history import ABSENT, ANOMALOUS, NORMAL, UNJUDGED
from laggard_aggregator.web.pages.page_state import StateReader
from laggard_aggregator.web.pages.straggler_rows import verdict
from tests.aggregator.web.test_pages import PAGES, Outline, ask, page, text_of, with_history
from tests.support.builders import live_status

NAN = float("nan")
NOW = live_status.NOW


def tile_states(text: str) -> list[str]:
    return re.findall(r'<li class="tile (\w+)">', text)


def title(text: str) -> str:
    return str(re.findall("<title>([^<]*)</title>", text)[0])


@pytest.mark.parametrize("path", PAGES)
def test_a_page_of_a_stalled_aggregator_says_so_first(path: str) -> None:
    fresh = page(path, with_history())
    assert '<div id="stale" data-live role="status"></div>' in fresh, (
        "the style sheet dims what follows content"
    )
    assert "Stale" not in fresh
    stalled = with_history()
    stalled.overdue_seconds = 600.0
    text = page(path, stalled)
    assert title(text).startswith("Stale · ")
    assert "Stale: windows are not judged, the newest window ended 40 s ago." in text_of(text)
    assert text.index('<p class="banner">') < text.index("<main")


def test_why_a_page_is_stale() -> None:
    view = with_history()
    view.now += 2 * 3600
    assert "Stale: windows are not judged, the newest window ended 2 h" in text_of(page("/", view))
    view = with_history()
    view.unready = "not connected to the broker"
    assert "Stale: not connected to the broker" in text_of(page("/", view))
    view = live_status.MadeView(overdue_seconds=61.0)
    assert "Stale: windows are not judged. " in text_of(page("/", view))
    view = with_history()
    view.now += 500  # nodes may send ten minutes late
    assert "Stale" not in page("/", view)


def test_numbers_of_nodes_are_those_of_the_rows() -> None:
    """Also where another page asked just before for their health alone."""
    view = live_status.site()
    view.nodes_ = tuple(replace(node, state="up", healthy=True) for node in view.nodes_)
    reader = StateReader(view)
    assert reader.now().unhealthy == ()
    first, *others = view.nodes_
    view.nodes_ = (replace(first, state="silent", healthy=False), *others)
    now = reader.now(nodes=True)
    assert now.nodes == view.nodes_
    assert now.unhealthy == view.nodes_[:1]
    assert now.node_counts[first.role, "silent"] == 1


def test_an_empty_site_has_no_ticks_but_a_next_step() -> None:
    view = live_status.MadeView()
    text = page("/", view)
    assert tile_states(text) == ["none"] * 5
    assert "✓" not in text
    said = text_of(text)
    assert "Nothing is compared yet: no agent has reported" in said
    assert "Next step No agent has reported. Start one on each node" in said
    assert "systemctl enable --now laggard-agent" in said
    assert "docs/guide.md" in said
    view.nodes_ = live_status.site().nodes_[:1]
    text = page("/", view)
    assert "Components of one kind are compared once there are four of them" in text_of(text)
    assert tile_states(text) == ["none", "none", "none", "good", "none"]
    view.groups_ = (live_status.group("luns", 4),)
    said = text_of(page("/", view))
    assert "The first window closes 60 s after the first samples." in said
    assert "Components with data 4 none compared yet" in said
    assert "Components compared" not in said
    calm = live_status.judgement("luns", ("a", "b", "c", "d"), [0] * 4, [1.0] * 4, [False] * 4)
    view.judgements_ = (calm,)
    text = page("/", view)
    assert "Next step" not in text
    assert tile_states(text) == ["good"] * 5


def graded(*severities: float) -> live_status.MadeView:
    """A group of stragglers d0, d1, ..., of which the first is the most persistent."""
    names = tuple(f"oss-1/d{at}" for at in range(len(severities)))
    persistence = [100 - at for at in range(len(severities))]
    judged = live_status.judgement("luns", names, persistence, list(severities), [True] * len(names))
    view = live_status.MadeView(groups_=(live_status.group("luns", len(names)),), judgements_=(judged,))
    view.history.judged([judged])
    return view


def test_the_worst_comes_first_and_slight_ones_are_folded() -> None:
    view = graded(1.2, 1.6, 5.6, 2.5, 1.4)
    text = page("/", view)
    assert "oss-1/d2 has been 5.6× slower than its peers" in text_of(text)
    assert "2 more stragglers; 2 slight stragglers" in text_of(text)
    table, slight = text.split('<details id="slight">')
    rows = re.findall(r'<strong class="(\w+)">([\d.]+×)', table)
    assert rows == [("severe", "5.6×"), ("serious", "2.5×"), ("moderate", "1.6×")]
    assert "2 slight stragglers, less than 1.5× slower" in text_of(slight)
    assert slight.index("oss-1/d4") < slight.index("oss-1/d0"), "1.4 before 1.2"
    assert title(text).startswith("3 stragglers and 2 slight stragglers")
    assert tile_states(text)[0] == "bad"
    text = page("/", graded(1.2, 1.3))
    assert "No component is 1.5× slower than its peers; 2 slight stragglers" in text_of(text)
    assert tile_states(text)[0] == "warn"
    assert title(text).startswith("2 slight stragglers")


def test_a_component_that_is_slow_at_times_says_so() -> None:
    view = graded(5.6, 1.0)
    (judged,) = view.judgements_
    cycles = {"oss-1/d0": DutyCycle(0.25, 23.4)}
    view.judgements_ = (replace(judged, verdicts=replace(judged.verdicts, duty_cycles=cycles)),)
    since = r"5\.6× slower than its peers since [^,]*UTC ?"
    assert re.search(f"oss-1/d0 has been {since}, 23× in 25 % of the time", text_of(page("/", view)))
    shown = text_of(page("/component/luns/oss-1/d0", view))
    assert re.search(f"{since}, for [^,]*, 23× in 25 % of the time", shown)
    (answer,) = ask(["/api/v1/stragglers"], view)
    told = {each["name"]: (each["slow_share"], each["slow_severity"]) for each in answer.json()["stragglers"]}
    assert told == {"oss-1/d0": (0.25, 23.4), "oss-1/d1": (None, None)}
    ones = np.ones_like(judged.verdicts.severity)
    verdicts = replace(judged.verdicts, duty_cycles=cycles, severity=ones, observed=ones, reference=ones)
    view.judgements_ = (replace(judged, verdicts=verdicts),)
    said = text_of(page("/component/luns/oss-1/d0", view))
    assert re.search(r"Slow at times since [^,]*, for [^:]*: 23× in 25 % of the time", said), "not slow now"


def test_an_unknown_factor_is_no_slight_one() -> None:
    assert [formatting.grade(each) for each in (1.0, 1.49, 1.5, 2.0, 4.99, 5.0, NAN)] == [
        *("slight", "slight", "moderate", "serious", "serious", "severe", "moderate"),
    ]
    view = live_status.site()
    assert "oss-3/wwn-5" in page("/", view).split('<details id="slight">')[0]


@pytest.mark.parametrize(
    ("state", "severity", "blamed", "said"),
    [
        (NORMAL, 1.0, False, "like its peers"),
        (NORMAL, 1.29, True, "like its peers"),
        (NORMAL, 2.0, False, "slower, not anomalous"),
        (NORMAL, 2.0, True, "slow with its node"),
        (NORMAL, NAN, False, "like its peers"),
        (ANOMALOUS, 2.0, True, "anomalous"),
        (UNJUDGED, NAN, False, "not judged"),
        (ABSENT, NAN, False, "no data"),
    ],
)
def test_a_verdict_in_words(state: int, severity: float, *, blamed: bool, said: str) -> None:
    assert verdict(state, severity, blamed=blamed) == said


def slow_node() -> live_status.MadeView:
    """oss-1 is blamed in place of its two disks; oss-2 has one slow disk."""
    names = ("oss-1/wwn-1", "oss-1/wwn-2", "oss-2/wwn-3", "oss-2/wwn-4", "oss-3/wwn-5", "oss-1")
    severities = (2.0, 2.1, 3.0, 1.0, 1.0, 2.05)
    judged = live_status.judgement(
        "luns", names, [0, 0, 6, 0, 0, 6], severities, [False, False, True, False, False, True]
    )
    verdicts: Verdicts = judged.verdicts
    blamed = replace(verdicts, anomalous=np.array([False, False, True, False, False, True]))
    judged = replace(judged, verdicts=blamed, levels=("component",) * 5 + ("node",))
    view = live_status.MadeView(
        groups_=(live_status.group("luns", 5),),
        judgements_=(judged,),
        nodes_=tuple(replace(live_status.site().nodes_[0], node=f"oss-{at}") for at in (1, 2, 3)),
    )
    view.history.judged([judged])
    return view


def test_a_node_that_is_slow_itself_says_so() -> None:
    view = slow_node()
    text = page("/node/oss-1", view)
    said = text_of(text)
    assert (
        "2.0× slower than its peers since 2025-10-09 08:56:40 UTC" in said
        or "2.1× slower than its peers" in said
    )
    assert "blamed in place of its 2 components" in said
    assert "wwn-1 luns await 2.0× slow with its node" in said
    assert "× like its peers" not in said
    assert 'id="verdict" data-live aria-label="Verdict" class="answer bad"' in text
    said = text_of(page("/node/oss-2", view))
    assert "1 straggler among its 2 compared components: oss-2/wwn-3 3.0×" in said
    said = text_of(page("/node/oss-3", view))
    assert "No stragglers among its 1 compared component." in said


def test_a_component_that_is_slower_without_a_verdict_is_not_like_its_peers() -> None:
    view = slow_node()
    view.judgements_ = (
        replace(view.judgements_[0], straggler=np.array([False] * 6), persistence=np.zeros(6, np.int64)),
    )
    said = text_of(page("/component/luns/oss-1/wwn-1", view))
    assert "Slower, not anomalous: 2.0×." in said
    assert "2× 20 slower, not anomalous" in said or "2.0× 10.00 slower, not anomalous" in said


def test_of_ten_thousand_components_the_map_shows_the_worst_and_counts_the_others() -> None:
    names = tuple(f"oss-{at // 10:04}/sd{at:05}" for at in range(10_000))
    severities = [4.0 if at % 385 == 7 else 1.0 for at in range(10_000)]
    slow = sum(each > 1 for each in severities)
    assert slow == 26
    judged = live_status.judgement("luns", names, [0] * 10_000, severities, [False] * 10_000)
    view = live_status.MadeView(groups_=(live_status.group("luns", 10_000),), judgements_=(judged,))
    for back in range(95, -1, -1):
        view.history.judged([replace(judged, start=judged.start - 30 * back, end=judged.end - 30 * back)])
    for path in ("/", "/groups"):
        text = page(path, view)
        card = text[text.index('<article class="card group">') :]
        assert len(re.findall('<th scope="row">', card)) == 8
        assert len(re.findall('class="l5"', card)) == 8, "one row is one component"
        assert "18 more with anomalous windows, 9,974 without any · all of luns" in text_of(card)
        assert re.findall(r"<time [^>]*>(\d\d:\d\d(?::\d\d)? UTC)</time>", card), "the axis names its zone"
        spans = re.findall('data-spans="([^"]*)"', card)[0].split()
        assert len(spans) == 2 * 96
        assert sum(map(float, spans)) == judged.end
    text = page("/group/luns", view)
    assert "26 of 10,000 components with anomalous windows" in text_of(text)
    assert "The whole group" not in text


@pytest.mark.parametrize(
    "path", [*PAGES, "/component/luns/none", "/component/storage%2Fnet%2F10%20Gb/oss-1/eth0"]
)
def test_every_link_is_relative_and_works_below_a_path(path: str) -> None:
    (answer,) = ask([path])
    outline = Outline(answer.text)
    links = [
        attrs.get(name) for _, attrs in outline.tags for name in ("href", "src", "action") if attrs.get(name)
    ]
    assert links
    for link in links:
        assert link is not None
        assert link.startswith(("./", "../", "#", "?")), link
        below = urljoin(f"https://host/laggard{path}", link)
        assert below.startswith("https://host/laggard/"), (link, below)
        assert urljoin(f"http://a{path}", link) == below.replace("https://host/laggard", "http://a"), link


def test_text_that_looks_like_a_link_stays_text() -> None:
    text = page('/search?q=href="/x" src="/y')
    assert "href=&#34;/x&#34; src=&#34;/y" in text


def test_ids_and_landmarks_are_unique() -> None:
    for path in PAGES:
        outline = Outline(page(path))
        landmarks = [
            (tag, attrs.get("aria-label") or attrs.get("aria-labelledby"))
            for tag, attrs in outline.tags
            if tag in ("nav", "section") or attrs.get("role") in ("region", "search")
        ]
        assert len(landmarks) == len(set(landmarks)), path
        inside = [attrs for tag, attrs in outline.tags if attrs.get("id") == "live-state"]
        assert len(inside) == 1
    text = page("/")
    assert text.index("</span>", text.index('id="as-of"')) < text.index('id="live-state"'), (
        "not swapped with it"
    )


@pytest.mark.parametrize(
    ("values", "trend"),
    [
        ([12.0, 12.0, 12.0, 12.0], "new"),
        ([12.0] * 5, "steady"),
        ([6.0, 12.0, 12.0, 12.0, 12.0], "steady"),
        ([7.6, 9.0, 7.8, 8.9, 6.7, 8.4], "steady"),
        ([3.0, 4.0, 5.0, 6.0, 7.0, 8.0], "getting slower"),
        ([9.0, 8.0, 7.0, 6.0, 5.0, 4.0], "getting better"),
    ],
)
def test_a_step_and_its_noise_are_no_trend(values: list[float], trend: str) -> None:
    """Against the windows before the step, or the one that it began in, it would be a creep."""
    judged = live_status.judgement(
        "luns", ("a", "b", "c", "d"), [6, 0, 0, 0], [4.0, 1.0, 1.0, 1.0], [True] * 4
    )
    view = live_status.MadeView(groups_=(live_status.group("luns", 4),), judgements_=(judged,))
    for at, value in enumerate([2.0] * 8 + values):
        window = replace(judged.verdicts, observed=np.array([value, 2.0, 2.0, 2.0]))
        start = live_status.NOW - 300 + 60.0 * (at - 8)
        view.history.judged([replace(judged, start=start, end=start + 60, verdicts=window)])
    assert trend in text_of(page("/", view)).split("Evidence Next step")[1]


def test_an_anomalous_window_as_fast_as_its_peers_is_one_by_its_average() -> None:
    assert verdict(ANOMALOUS, 0.8) == "anomalous on average"
    assert verdict(ANOMALOUS, 1.2) == verdict(ANOMALOUS, NAN) == "anomalous"
