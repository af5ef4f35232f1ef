"""The plot, drawn by the real child process."""

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from laggard_aggregator.notify.email import plot
from laggard_aggregator.notify.email.plot import MAX_BYTES, drawn
from tests.support.builders.notifications import report


def size(png: bytes) -> tuple[int, int]:
    return int.from_bytes(png[16:20]), int.from_bytes(png[20:24])


def test_a_timeline_with_any_name_becomes_a_png_of_fixed_size() -> None:
    worst = replace(report().worst, metric="$x", unit="\\")
    hostile = report(name="$\\frac{x$ _nothing\u202e <&> Ω" * 9, comparisons=(worst,))
    png = asyncio.run(drawn(hostile))
    assert png is not None
    assert size(png) == (1152, 522)
    assert len(png) < MAX_BYTES / 4


def test_two_windows_with_gaps_can_be_drawn() -> None:
    timeline = report().timeline
    assert timeline is not None
    few = timeline[:2].copy()
    few[0, 1] = few[1, 2] = few[1, 4] = np.nan
    assert asyncio.run(drawn(report(timeline=few))) is not None


def test_without_a_timeline_there_is_none() -> None:
    timeline = report().timeline
    assert timeline is not None
    nothing = timeline.copy()
    nothing[:, 1] = np.nan
    assert asyncio.run(drawn(report(timeline=None))) is None
    assert asyncio.run(drawn(report(timeline=nothing))) is None


@pytest.mark.parametrize("program", ["laggard_aggregator.notify.email.no_such_program", "this"])
def test_a_child_that_fails_is_one_warning(
    program: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(plot, "PROGRAM", program)
    assert asyncio.run(drawn(report())) is None
    (said,) = caplog.messages
    assert said.startswith("mail sent without its plot: ")


def test_a_full_disk_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert asyncio.run(drawn(report())) is None
    assert caplog.messages == ["mail sent without its plot: No such file or directory"]


def test_a_child_that_hangs_is_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(plot, "PROGRAM", "asyncio")  # waits for what it is told to do
    monkeypatch.setattr(plot, "DRAW_SECONDS", 0.0)
    assert asyncio.run(drawn(report())) is None
    assert caplog.messages == ["mail sent without its plot, which took more than 0 s to draw"]
