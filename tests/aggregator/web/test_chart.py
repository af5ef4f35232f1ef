"""Charts as SVG: what is in them, and what cannot be drawn."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from laggard_aggregator.status import formatting
from laggard_aggregator.status.window_history import ANOMALOUS, NORMAL, ComponentHistory
from laggard_aggregator.web.pages import charts
from laggard_aggregator.web.pages.charts import cdf_chart, sparkline

NAN = float("nan")


def course(observed: list[float], state: int = NORMAL) -> ComponentHistory:
    values = np.array(observed)
    return ComponentHistory(
        start=np.arange(len(values), dtype=np.float64),
        end=np.arange(len(values), dtype=np.float64) + 1,
        state=np.full(len(values), state, dtype=np.uint8),
        observed=values,
        reference=np.full(len(values), 2.0),
        severity=values / 2,
        score=values,
        band=np.tile([1.0, 1.5, 2.0, 2.5, 3.0], (len(values), 1)),
    )


def band_chart(course: ComponentHistory, unit: str, title: str) -> str:
    hot = course.state == ANOMALOUS
    return charts.band_chart(course.end, course.observed, course.band, hot, unit=unit, label=title)


def paths(svg: str, name: str) -> list[str]:
    root = ET.fromstring(svg)
    return [each.attrib["d"] for each in root.iter("path") if name in each.attrib["class"].split()]


def test_a_gap_in_the_values_is_a_gap_in_the_line() -> None:
    (own,) = paths(band_chart(course([2.0, 2.0, NAN, 8.0, 8.0]), "ms", "title"), "own")
    assert own.count("M") == 2
    assert own.count("L") == 2


def test_a_sparkline_follows_its_values_in_whole_steps() -> None:
    (own,) = paths(sparkline(course([1.0, 1.0, 4.0, NAN, 2.0, 1.0])), "own")
    assert own == "M0 46l1 0l1 -42M4 32l1 14"


def test_the_slow_part_lies_above_the_band() -> None:
    svg = band_chart(course([2.0, 8.0], ANOMALOUS), "ms", "<title>")
    (own,) = paths(svg, "own")
    first, last = (float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", own))
    (wide,) = paths(svg, "wide")
    assert last < min(float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", wide)) < first
    assert svg.count("<circle") == 2
    assert "8 ms" in svg
    assert "&lt;title&gt;" in svg


@pytest.mark.parametrize("values", [[], [2.0], [NAN, NAN]])
def test_what_is_too_little_is_not_drawn(values: list[float]) -> None:
    nothing = course(values)
    assert sparkline(nothing) == ""
    without_peers = ComponentHistory(
        nothing.start,
        nothing.end,
        nothing.state,
        nothing.observed,
        nothing.reference,
        nothing.severity,
        nothing.score,
        np.full_like(nothing.band, NAN),
    )
    assert band_chart(without_peers, "", "") == ""


@pytest.mark.parametrize("value", [0.0, 5.0, -3.0, 1e-9, 1e30])
def test_values_that_never_change_are_drawn(value: float) -> None:
    for svg in (band_chart(course([value, value]), "ms", ""), cdf_chart(np.array([value]), [], "ms", "")):
        assert "nan" not in svg
        assert "inf" not in svg
        ET.fromstring(svg)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (40, ["00:00", "00:00:05"]),
        (3600, ["00:00", "00:10", "00:20"]),
        (43_200, ["00:00", "02:00", "04:00"]),
        (7 * 86_400, ["01-01 00:00", "01-02 00:00"]),
        (365 * 86_400, ["01-17 00:00", "03-04 00:00"]),
    ],
)
def test_the_times_along_an_axis_are_round(seconds: int, said: list[str]) -> None:
    some = course([2.0, 2.0])
    shown = band_chart(replace(some, end=1_767_225_600.0 + np.array([0.0, seconds])), "ms", "")
    times = re.findall(r'class="below"[^>]*>([^<]*)<', shown)
    assert 2 <= len(times) <= 9
    assert times[0].endswith(" UTC")
    texts = [each.removesuffix(" UTC") for each in times]
    assert texts[: len(said)] == said or texts[1 : len(said) + 1] == said
    ats = [float(at) for at in re.findall(r'data-at="(\d+)"', shown)]
    assert [formatting.clock(at) in time for at, time in zip(ats, times, strict=True)] == [True] * len(times)


def test_a_distribution_rises_from_nothing_to_all() -> None:
    svg = cdf_chart(np.array([1.0, 2.0, 2.0, 4.0]), [np.array([0.5, 1.0])], "ms", "")
    (own,) = paths(svg, "own")
    ups = [float(y) for y in re.findall(r"V([\d.]+)", own)]
    assert ups == sorted(ups, reverse=True)
    assert ups[-1] == pytest.approx(10.0)  # the upper edge
    assert len(paths(svg, "peer")) == 1


def test_the_last_label_of_an_axis_of_times_is_within_the_picture() -> None:
    ends = np.arange(81.0) + 1_700_000_005.0
    picture = ET.fromstring(str(charts.series_chart(ends, np.ones(81), "B", "Written")))
    labels = [each for each in picture.iter() if each.get("class") == "below"]
    assert labels
    for each in labels:
        assert float(each.get("x", "nan")) + 3.5 * len(each.text or "") <= charts.WIDTH
