"""The leaderboard counts alarms and windows right, tunes thresholds as it says, and takes other series."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from bench.accuracy.injected import Case
from bench.leaderboard.__main__ import main
from bench.leaderboard.entries import TUNED, Entry
from bench.leaderboard.labels import read_labels
from bench.leaderboard.ranking import rank
from bench.leaderboard.scoring import Fault, Result, best_threshold
from bench.leaderboard.series import METRIC, Scores, Series, k_of_windows
from bench.leaderboard.slowed import Slowed
from laggard_aggregator.detect.interface import BoolArray, FloatArray
from laggard_aggregator.offline.sample_grid import Grid
from laggard_common.errors import InputError

INTERVAL = 15.0
BLOCKS_A_DAY = 5760 // 4


def grid_of(latency: FloatArray, blocks: list[int], group: str = "host") -> Grid:
    """Drives disk0, disk1 ... in windows of four intervals."""
    names = tuple(f"disk{c}" for c in range(len(latency)))
    load = {"throughput": np.ones(latency.shape)}
    return Grid(group, names, 15 * 10**9, 4, np.array(blocks), {METRIC: latency}, load)


def flags(*rows: str) -> BoolArray:
    """True for each x."""
    return np.array([[letter == "x" for letter in row] for row in rows])


def test_days_and_what_is_known_when() -> None:
    series = Series(grid_of(np.ones((1, 16)), [0, 1, BLOCKS_A_DAY, 3 * BLOCKS_A_DAY]))
    assert series.days == [slice(0, 8), slice(8, 12), slice(12, 16)]
    assert series.window_days().tolist() == [0, 0, 1, 2]
    sums = series.over_days(np.array([[1.0, 2.0, 4.0]]), 2)
    assert sums.tolist() == [[1.0, 3.0, 4.0]]  # the second day is not among the two that end with the fourth
    assert series.after_days(sums).tolist() == [[0] * 7 + [1] * 4 + [3] * 4 + [4]]
    assert series.after_windows(np.array([[1.0, 0, 2, 0]])).tolist() == [
        [0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 2, 2, 2, 2, 0]
    ]


def test_windows_are_means_of_what_is_there() -> None:
    latency = np.array([[1.0, np.nan, 3.0, 0.0] + [np.nan] * 4])  # 0: no I/O
    means = Series(grid_of(latency, [0, 1])).by_window(latency)
    assert means[0, 0] == 2.0
    assert np.isnan(means[0, 1])


def test_three_of_five_windows() -> None:
    scores = np.array([[5.0, 1, 4, 1, 3, np.nan, 9, 9]])
    assert k_of_windows(scores)[0].tolist() == [-np.inf, -np.inf, 1, 1, 3, 1, 3, 3]


def test_alarms_are_counted_by_drive_and_by_episode() -> None:
    series = Series(grid_of(np.ones((4, 8)), [0, 1]))
    faults = [Fault("host", "disk0", 45.0, 105.0), Fault("host", "disk1", 45.0), Fault("other", "disk3")]
    result = Result()
    # disk0: an alarm before the fault, one within; disk1: one only before; disk2: two, healthy
    alarms = flags("x.......", "x.......", "x.x.....", "........")
    alarms[0, 5] = True
    slow = flags("xx", ".x", "x.", "..")
    result.add(series, faults, alarms, slow)
    assert (result.drives.right, result.drives.missed, result.drives.wrong) == (1, 1, 1)
    assert result.false_alarms == 4
    assert result.delays == [0.75, np.inf]  # the third interval that ends in the fault
    # a window is slow where half of it lies in a fault: the second of disk0 and of disk1
    assert (result.windows.right, result.windows.missed, result.windows.wrong) == (2, 0, 2)
    assert result.hours == pytest.approx((32 - 4 - 5) * INTERVAL / 3600.0)
    assert result.false_alarms_a_week == pytest.approx(4 * 168.0 / result.hours)


def test_an_alarm_that_outlasts_a_fault_is_none_of_its_own() -> None:
    series = Series(grid_of(np.ones((1, 8)), [0, 1]))
    result = Result()
    result.add(series, [Fault("host", "disk0", 30.0, 60.0)], flags("..xxxxxx"), flags(".."))
    assert (result.false_alarms, result.delays) == (0, [0.25])


def test_the_best_threshold_has_the_best_f1_and_then_the_fewest_false_alarms() -> None:
    peaks = np.array([9.0, 7.0, 5.0, 3.0, np.nan])
    threshold = best_threshold(peaks, np.array([True, True, False, False, False]))
    assert 5.0 < threshold < 5.0 + 1e-9
    threshold = best_threshold(peaks, np.array([False, True, False, False, True]))
    assert 5.0 < threshold < 5.0 + 1e-9  # one right, one wrong, one missed
    assert best_threshold(peaks, np.ones(5, dtype=np.bool_)) < 3.0
    threshold = best_threshold(peaks[:4], np.array([True, False, False, True]))
    assert 7.0 < threshold < 7.0 + 1e-9  # all four would be as good: 2 / 3


@dataclass
class LatencyItself:
    """A detector whose score is the latency; counts its calls."""

    calls: list[str] = field(default_factory=list)

    def __call__(self, series: Series) -> Scores:
        self.calls.append(series.grid.group)
        return Scores(series.latency, series.by_window(series.latency))


def test_thresholds_are_tuned_for_each_cluster_and_scores_computed_once() -> None:
    latency = np.repeat([[1.0], [3.0]], 8, axis=1)
    grids = [grid_of(latency, [0, 1], "a__host"), grid_of(10 * latency, [0, 1], "b__host")]
    faults = [Fault("a__host", "disk1"), Fault("b__host", "disk1")]
    score = LatencyItself()
    entries = [Entry("fixed", score, "none", 2.0, 2.0), Entry("tuned", score, "labels", TUNED, TUNED)]
    rows = rank([Series(grid) for grid in grids], faults, entries, lambda group: group[0])
    assert [row.entry.name for row in rows] == ["tuned", "fixed"]
    assert rows[0].thresholds == {"a": pytest.approx(1.0), "b": pytest.approx(10.0)}
    assert (rows[0].total.drives.f1, rows[0].total.windows.f1) == (1.0, 1.0)
    assert rows[1].clusters["b"].drives.wrong == 1
    assert score.calls == ["a__host", "b__host"]


def test_a_drive_is_found_only_by_an_alarm_that_it_has_not_as_it_is() -> None:
    rng = np.random.default_rng(1)
    grid = grid_of(rng.uniform(1.0, 1.1, (5, 160)), list(range(40)))
    score = LatencyItself()
    entries = [Entry("sees it", score, "none", 1.5), Entry("always alarmed", score, "none", 0.5)]
    rows = rank([Series(grid)], [], entries, lambda _group: "all")
    case = Case("twice", 2.0, trials=3)
    found = Slowed([grid], rows, lambda _group: "all").run(case, np.random.default_rng(2))
    assert found["sees it"].delays == [0.25] * 3
    assert found["always alarmed"].delays == [np.inf] * 3
    assert found["sees it"].blamed == 0


HEADER = "t,disk,await,bytes\n"


def write_series(path: Path, factor: float) -> Path:
    """Six drives for eight hours; disk0 is slower from the second hour to the sixth."""
    rng = np.random.default_rng(3)
    lines = []
    for t in range(0, 8 * 3600, 15):
        for drive in range(6):
            slow = factor if drive == 0 and 3600 <= t < 6 * 3600 else 1.0
            lines.append(
                f"{1_790_000_000 + t},disk{drive},{5 * slow * rng.lognormal(0, 0.05):.4f},{1e6 + t:.0f}"
            )
    path.write_text(HEADER + "\n".join(lines) + "\n")
    return path


def run(series: Path, labels: Path, *more: str) -> int:
    columns = (
        "--time-column",
        "t",
        "--component-column",
        "disk",
        "--metric",
        "await",
        "--group-by",
        "file",
        "--unit",
        "ms",
    )
    return main(["--csv", str(series), "--labels", str(labels), *columns, *more])


def test_it_runs_on_other_series(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    series = write_series(tmp_path / "host.csv", 3.0)
    labels = tmp_path / "labels.csv"
    labels.write_text("component,start,end\ndisk0,1790003600,1790021600\n")
    assert run(series, labels, "--only", "Laggard", "--markdown") == 0
    printed = capsys.readouterr().out
    assert "1 groups, 6 drives, 1 of them slow" in printed
    row = next(line for line in printed.splitlines() if "`laggard`" in line)
    drives, windows, delay, false_alarms = [cell.strip() for cell in row.split("|")[2:6]]
    assert drives == "1.000 / 1.000 / **1.0000**"
    assert float(windows) > 0.9
    assert float(delay.split("/")[0]) <= 20
    assert false_alarms == "0.00"
    assert "F1 by cluster" not in printed

    assert run(series, labels, "--load", "bytes") == 0
    with_load = capsys.readouterr().out
    assert "PERSEUS" in with_load
    assert "CSR" in with_load


def test_without_a_load_those_that_need_it_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("component,start,end\ndisk0,2026-09-21T14:00:00,\n")
    assert run(write_series(tmp_path / "host.csv", 3.0), labels) == 0
    printed = capsys.readouterr().out
    assert "PERSEUS" not in printed
    assert "Kratos" in printed


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("component,start\ndisk0,1\n", "no column end"),
        ("component,start,end\ndisk9,1,2\n", "data row 1: 'disk9' is in no group"),
        ("component,start,end\ndisk0,soon,2\n", "expected epoch seconds or ISO 8601, got 'soon'"),
    ],
)
def test_labels_that_cannot_be_read_are_an_error(
    content: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text(content)
    series = tmp_path / "host.csv"
    series.write_text(HEADER + "".join(f"1790000000,disk{c},5,1\n" for c in range(6)))
    assert run(series, labels) == 2
    assert problem in capsys.readouterr().err


def test_a_folder_without_the_drives_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert f"{tmp_path / 'labels.csv'}" in capsys.readouterr().err


def test_a_name_that_no_detector_has_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("component,start,end\n")
    with pytest.raises(SystemExit, match="2"):
        run(write_series(tmp_path / "host.csv", 1.0), labels, "--only", "magic")
    assert "no detector has 'magic' in its name" in capsys.readouterr().err


def test_a_name_of_several_groups_needs_its_group(tmp_path: Path) -> None:
    grids = [grid_of(np.ones((2, 4)), [0], group) for group in ("a", "b")]
    labels = tmp_path / "labels.csv"
    labels.write_text("component,start,end\ndisk0,,\n")
    with pytest.raises(InputError, match="is in several groups"):
        read_labels(labels, grids)
    labels.write_text("component,start,end,group\ndisk0,,100,b\n")
    assert read_labels(labels, grids) == [Fault("b", "disk0", -np.inf, 100.0)]
