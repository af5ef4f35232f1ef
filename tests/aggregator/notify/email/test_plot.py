"""The plot, drawn by the real child process."""

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from laggard_aggregator.notify.email import plot as drawing
from laggard_aggregator.notify.email.plot import MAX_BYTES, drawn
from tests.support.builders.mails import report


def size(png: bytes) -> tuple[int, int]:
    return int.from_bytes(png[16:20]), int.from_bytes(png[20:24])


def test_a_course_with_any_name_becomes_a_png_of_fixed_size() -> None:
    hostile = report(name="$\\frac{x$ _nothing\u202e <&> Ω" * 9, metric="$x", unit="\\")
    png = asyncio.run(drawn(hostile))
    assert png is not None
    assert size(png) == (1152, 522)
    assert len(png) < MAX_BYTES / 4


def test_two_windows_with_gaps_can_be_drawn() -> None:
    course = report().course
    assert course is not None
    few = {name: getattr(course, name)[:2].copy() for name in ("end", "own", "low", "middle", "high")}
    few["own"][0] = few["low"][1] = few["high"][1] = np.nan
    assert asyncio.run(drawn(report(course=replace(course, **few)))) is not None


def test_without_a_course_there_is_none() -> None:
    course = report().course
    assert course is not None
    nothing = replace(course, own=np.full_like(course.own, np.nan))
    assert asyncio.run(drawn(report(course=None))) is None
    assert asyncio.run(drawn(report(course=nothing))) is None


@pytest.mark.parametrize("program", ["laggard_aggregator.notify.email.no_such_program", "this"])
def test_a_child_that_fails_is_one_warning(
    program: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(drawing, "PROGRAM", program)
    assert asyncio.run(drawn(report())) is None
    (said,) = caplog.messages
    assert said.startswith("a mail goes without its plot: ")


def test_a_full_disk_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert asyncio.run(drawn(report())) is None
    assert caplog.messages == ["a mail goes without its plot: No such file or directory"]


def test_a_child_that_hangs_is_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(drawing, "PROGRAM", "asyncio")  # waits for what it is told to do
    monkeypatch.setattr(drawing, "DRAW_SECONDS", 0.0)
    assert asyncio.run(drawn(report())) is None
    assert caplog.messages == ["a mail goes without its plot: it took more than 0 s"]
