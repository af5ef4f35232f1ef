"""Figures as an operator reads them."""

import math

import pytest

from laggard_aggregator.status import formatting, urls

NAN = float("nan")


@pytest.mark.parametrize(
    ("severity", "said"),
    [
        (1.0, "1.0×"),
        (3.96, "4.0×"),
        (9.96, "10×"),
        (12.34, "12×"),
        (99.6, "100×"),
        (1234.0, "1,234×"),
        (NAN, "–"),
    ],
)
def test_a_factor(severity: float, said: str) -> None:
    assert formatting.factor(severity) == said


@pytest.mark.parametrize(
    ("value", "said"), [(8.0, "8 ms"), (24.52, "24.5 ms"), (123456.7, "123,457 ms"), (0.00012, "0.00012 ms")]
)
def test_a_figure(value: float, said: str) -> None:
    assert formatting.figure(value, "ms") == said
    assert formatting.figure(NAN, "ms") == "–"


@pytest.mark.parametrize(("value", "said"), [(-8.2, "0.00"), (0.994, "0.99"), (1.5, "1.50"), (NAN, "–")])
def test_a_score(value: float, said: str) -> None:
    assert formatting.score(value) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-3, "0 s"),
        (0, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (3600, "1 h"),
        (3725, "1 h 2 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_how_long(seconds: float, said: str) -> None:
    assert formatting.lasting(seconds) == said


@pytest.mark.parametrize("at", [NAN, float("inf"), -1.0, 0.0, 1e18])
def test_what_is_no_time(at: float) -> None:
    assert (
        formatting.moment(at)
        == formatting.day_and_clock(at)
        == formatting.clock(at)
        == formatting.ago(at, 1e9)
        == "–"
    )
    assert formatting.iso(at) == ""


def test_a_size_and_a_count() -> None:
    assert [formatting.size(n) for n in (None, 0, 999, 1000, 2.5e13)] == [
        "–",
        "0 B",
        "999 B",
        "1 kB",
        "25 TB",
    ]
    assert [formatting.counted(n, "node") for n in (0, 1, 1200)] == ["0 nodes", "1 node", "1,200 nodes"]


def test_a_sentence_keeps_its_capitals() -> None:
    assert (
        formatting.sentence("collector net: No such file: /proc/A") == "Collector net: No such file: /proc/A"
    )
    assert formatting.sentence("") == ""


def test_a_link_holds_any_name() -> None:
    assert urls.component("a/b", "oss-1/s d?#", "await") == "/component/a%2Fb/oss-1/s%20d%3F%23?metric=await"
    assert urls.group("a/b", metric="", page=2) == "/group/a%2Fb?page=2"
    assert urls.node("ü") == "/node/%C3%BC"


@pytest.mark.parametrize(
    ("now", "average", "said"),
    [
        (6.0, 4.3, "is 6.0 times slower than its peers, 4.3 times on average"),
        (4.2, 4.3, "is 4.2 times slower than its peers"),
        (1.0, 5.3, "is 5.3 times slower than its peers on average, 1.0 times now"),
        (float("nan"), 4.3, "is 4.3 times slower than its peers"),
        (0.5, 0.5, "is 2.0 times faster than its peers"),
        (float("nan"), float("nan"), "behaves unlike its peers"),
    ],
)
def test_the_factor_is_of_the_latest_window_and_an_average_is_called_one(
    now: float, average: float, said: str
) -> None:
    assert formatting.slower(now, average=average) == said


@pytest.mark.parametrize(
    ("now", "average", "against", "said"),
    [
        (6.0, 4.3, "peers", "has been 6.0 times slower than its peers for 6 h, 4.3 times on average"),
        (1.0, 5.3, "peers", "has been 5.3 times slower than its peers on average for 6 h, 1.0 times now"),
        (math.nan, math.nan, "peers", "has behaved unlike its peers for 6 h"),
        (2.5, 2.5, "own past", "has been 2.5 times slower than in its own past for 6 h"),
        (2.5, 2.5, "other side", "has been 2.5 times slower than the rest of its group for 6 h"),
        (2.5, 2.5, "known peak", "has stayed 2.5 times below its known peak for 6 h"),
    ],
)
def test_what_has_lasted_is_told_in_the_perfect(now: float, average: float, against: str, said: str) -> None:
    assert formatting.slower(now, against=against, average=average, span="for 6 h") == said
