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
from laggard_aggregator.web.pages.timeline import timelines

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
    times = re.findall(r'class="below(?: minor)?"[^>]*>([^<]*)<', shown)
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


def job_series(**changes: object) -> dict[str, object]:
    """A row of `job_series`: 80 values of a second each."""
    none = np.zeros(80)
    own = {"layer": "client", "node": None, "start": 1_700_000_005.0, "resolution_seconds": 1.0}
    return own | {"read_bytes": none, "written_bytes": none, "metadata_operations": none} | changes


def test_the_last_label_of_an_axis_of_times_is_within_the_picture() -> None:
    (one,) = timelines([job_series(written_bytes=np.ones(80))], [])
    ((_, svg),) = one.pictures
    labels = [each for each in ET.fromstring(svg).iter() if "below" in each.get("class", "").split()]
    assert labels
    for each in labels:
        assert float(each.get("x", "nan")) + 3.5 * len(each.text or "") <= charts.WIDTH


def test_a_timeline_has_reads_and_writes_in_one_picture_with_the_phases_on_it() -> None:
    values = np.full(80, 5e6)
    gap = np.concatenate([values[:40], [NAN], values[41:]])
    phases = [
        {
            "direction": "write",
            "start": 1_700_000_015.0,
            "end": 1_700_000_035.0,
            "amount": 1e8,
            "busy_seconds": 20.0,
        },
        {
            "direction": "metadata",
            "start": 1_700_000_005.0,
            "end": 1_700_000_085.0,
            "amount": 400.0,
            "busy_seconds": 80.0,
        },
    ]
    own = job_series(read_bytes=gap, written_bytes=values, metadata_operations=values / 1e6)
    inner = job_series(layer="server", read_bytes=values)
    outer, other = timelines([inner, own, job_series(node="cn-1", read_bytes=values)], phases)
    (_, volumes), (_, metadata) = outer.pictures
    assert [len(paths(volumes, name)) for name in ("read", "write")] == [1, 1]
    assert paths(volumes, "read")[0].count("M") == 2, "a gap is a gap of the line"
    assert re.findall(r"<title>([^<]*)<", volumes) == ["write 100 MB in 20 s"]
    assert re.findall(r"<title>([^<]*)<", metadata) == ["metadata 400 operations in 80 s"]
    bar = next(each for each in ET.fromstring(volumes).iter("rect") if each.get("class") is None)
    scale = (charts.WIDTH - charts.LEFT - charts.RIGHT) / 80
    assert float(bar.get("x", "nan")) == pytest.approx(charts.LEFT + 10 * scale, abs=0.1)
    assert float(bar.get("width", "nan")) == pytest.approx(20 * scale, abs=0.1)
    assert "5 MB/s" in volumes
    assert (other.seen_by, "<title>" in other.pictures[0][1]) == ("server", False)


def test_a_job_without_io_has_no_timeline() -> None:
    assert timelines([job_series(), job_series(layer="server", read_bytes=None)], []) == []
