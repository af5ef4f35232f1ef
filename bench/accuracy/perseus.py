"""Who is right about real drives: `python -m bench.accuracy.perseus [DIR]`, a table in Markdown.

DIR holds `<cluster>__<host>.csv.xz` (ts, disk_id, throughput, latency) and `labels.csv` (cluster, host,
disk_id) of drives that fail slow, each for its whole time. Every detector runs through the product's own
engine, windows and alarm rules: intervals of 15 s, windows of 20 samples, shift 20, 3 of 5.
"""

import argparse
import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bench.accuracy.baselines import RatioDetector
from bench.machine import machine
from laggard_aggregator.alarms.judge import Judge, Judgement
from laggard_aggregator.detect.cdf.binned_group import CdfOptions
from laggard_aggregator.detect.cdf.training import largest_deviation
from laggard_aggregator.detect.interface import FloatArray, GroupWindow
from laggard_aggregator.detect.registry import AnyDetector, make_detector
from laggard_aggregator.detect.settings import ByMetric, DetectSettings
from laggard_aggregator.offline.csv_columns import CsvColumns
from laggard_aggregator.offline.findings import Findings
from laggard_aggregator.offline.run import read_grids
from laggard_aggregator.offline.sample_grid import Grid, windows_in_order

METRIC = "latency"
SETTINGS = DetectSettings(window_samples=20, shift_samples=20)
COLUMNS = CsvColumns("ts", "disk_id", (METRIC,), "throughput", "file")
DAY_SECONDS = 86400
Drive = tuple[str, str]
Maker = Callable[[DetectSettings, str], AnyDetector]


@dataclass(slots=True)
class Tally:
    """True positives, false positives and false negatives."""

    right: int = 0
    wrong: int = 0
    missed: int = 0

    def count(self, truth: bool, found: bool, times: int = 1) -> None:
        """Counts `times` verdicts."""
        self.right += times * (truth and found)
        self.wrong += times * (found and not truth)
        self.missed += times * (truth and not found)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return 2 * self.right / max(2 * self.right + self.wrong + self.missed, 1)

    def __str__(self) -> str:
        precision = self.right / max(self.right + self.wrong, 1)
        recall = self.right / max(self.right + self.missed, 1)
        return f"{precision:.3f} / {recall:.3f} / **{self.f1:.4f}**"


def delay_text(delays: Sequence[float], shares: Sequence[float] = (0.5, 0.9, 1.0)) -> str:
    """Median, 90 % and maximum of `delays` in minutes (or `shares`), each one of them; infinite = never."""
    quantiles = np.quantile(delays, shares, method="lower") if delays else ()
    return " / ".join("never" if np.isinf(delay) else f"{delay:.0f}" for delay in quantiles) or "never"


@dataclass(slots=True)
class Result:
    """How one detector did. `delays`: `observed_minutes` to each faulty drive's alarm, infinite = never."""

    drives: Tally = field(default_factory=Tally)
    days: Tally = field(default_factory=Tally)
    windows: Tally = field(default_factory=Tally)
    delays: list[float] = field(default_factory=list)
    alarmed: list[Drive] = field(default_factory=list)
    healthy: int = 0

    def row(self, name: str) -> str:
        """A line of the table."""
        alarmed = f"{len(self.alarmed)} ({len(self.alarmed) / max(self.healthy, 1):.1%})"
        cells = (name, self.drives, self.days, self.windows, delay_text(self.delays), alarmed)
        return f"| {' | '.join(str(cell) for cell in cells)} |"


HEADER = (
    "| detector | drives: precision / recall / F1 | drive-days | 5-minute windows "
    "| delay, min: median / p90 / max | healthy drives ever alarmed |\n|---|---|---|---|---|---|"
)


def cluster_of(group: str) -> str:
    """The first part of a host's name."""
    return group.split("__", maxsplit=1)[0]


def truth_of(directory: Path) -> set[Drive]:
    """The faulty drives as (group, drive)."""
    with (directory / "labels.csv").open(newline="") as file:
        return {(f"{row['cluster']}__{row['host']}", row["disk_id"]) for row in csv.DictReader(file)}


def grids_of(directory: Path) -> list[Grid]:
    """The samples of all hosts."""
    return read_grids(sorted(directory.glob("*__*.csv*")), COLUMNS, SETTINGS)


def judgements(
    grids: Sequence[Grid],
    by_group: Mapping[str, ByMetric],
    make: Maker,
    settings: DetectSettings = SETTINGS,
) -> Iterator[Judgement]:
    """All groups through one engine, in order of time, with one configuration."""
    drives = sum(len(grid.components) for grid in grids)
    settings = replace(settings, tests_at_once=drives)
    engine = Judge(
        {g.group: replace(settings, thresholds=by_group.get(g.group, {})) for g in grids}, make=make
    )
    history = {grid.group: engine.history_samples(grid.group, METRIC) for grid in grids}
    for window in windows_in_order(list(grids), settings.window_samples, history):
        yield from engine.evaluate(window)


def observed_minutes(grid: Grid, since: float, until: float) -> float:
    """Minutes between two times, in seconds since the epoch, of which the group has samples."""
    seconds = grid.interval_ns / 1e9
    number = grid.blocks[:, None] * grid.block_samples + np.arange(grid.block_samples)
    ends = (number.ravel() + 1) * seconds
    known = np.isfinite(grid.metrics[METRIC]).any(axis=0) & (ends > since) & (ends <= until)
    return float(known.sum()) * seconds / 60.0


def result_of(
    grids: Sequence[Grid],
    judged: Iterator[Judgement],
    truth: set[Drive],
    settings: DetectSettings = SETTINGS,
) -> Result:
    """The verdicts of a run, scored."""
    result, findings = Result(), Findings(lambda _: settings.confirm)
    by_group = {grid.group: grid for grid in grids}
    for each in judged:
        findings.add(each)
        faulty = np.array([(each.group, name) in truth for name in each.components])
        flags = each.verdicts.judged & each.verdicts.anomalous
        for is_faulty in (True, False):
            for is_flagged in (True, False):
                times = int(((faulty == is_faulty) & (flags == is_flagged)).sum())
                result.windows.count(is_faulty, is_flagged, times)
    for day in findings.days():
        result.days.count((day.group, day.component) in truth, day.straggler)
    for drive in findings.components():
        faulty_drive = (drive.group, drive.component) in truth
        result.drives.count(faulty_drive, drive.straggler)
        if faulty_drive:
            first = drive.first_alarm
            found = np.inf if first is None else observed_minutes(by_group[drive.group], 0.0, first)
            result.delays.append(found)
        else:
            result.healthy += 1
            if drive.first_alarm is not None:
                result.alarmed.append((drive.group, drive.component))
    return result


def ratio(kind: str, threshold: float) -> Maker:
    """Makes a detector of that kind."""
    return lambda settings, metric: RatioDetector(settings, metric, kind, threshold)


def best_threshold(grids: Sequence[Grid], kind: str, truth: set[Drive]) -> float:
    """The threshold with which windows' F1 is highest: chosen on the labels themselves, the best case."""
    scores, faulty = [], []
    for each in judgements(grids, {}, ratio(kind, np.inf)):
        here = each.verdicts.judged
        scores.append(each.verdicts.score[here])
        faulty.append(np.array([(each.group, name) in truth for name in each.components])[here])
    score, true = np.concatenate(scores), np.concatenate(faulty)
    order = np.argsort(-score)
    right = np.cumsum(true[order])
    f1 = 2 * right / (np.arange(1, score.size + 1) + true.sum())
    return float(score[order][int(np.argmax(f1))]) * (1 - 1e-12)


def first_day(grid: Grid, settings: DetectSettings) -> Iterator[GroupWindow]:
    """The windows of a group's first day."""
    ends = grid.window_ends(settings.window_samples)
    last = ends[0] * grid.interval_ns // 10**9 // DAY_SECONDS * DAY_SECONDS + DAY_SECONDS
    history = make_detector(replace(settings, detector="cdf"), METRIC).history_samples
    for end in ends:
        window = grid.window(int(end), settings.window_samples, history)
        if window is not None and window.end <= last:
            yield window


def deviations(grid: Grid, settings: DetectSettings = SETTINGS) -> FloatArray:
    """Each drive's largest deviation on the first day, as `cdf` is trained."""
    options = CdfOptions()
    largest: FloatArray = np.fmax.reduce(
        [largest_deviation(each.metrics[METRIC], each.history, options) for each in first_day(grid, settings)]
    )
    return largest


def trained_on_own_day(grids: Sequence[Grid]) -> dict[str, ByMetric]:
    """Thresholds from each drive's own first day, whether it was healthy or not."""
    return {g.group: {METRIC: dict(zip(g.components, deviations(g).tolist(), strict=True))} for g in grids}


def trained_on_healthy_hosts(grids: Sequence[Grid], truth: set[Drive]) -> dict[str, ByMetric]:
    """One threshold a cluster: the largest deviation on the first day of its hosts without a faulty drive."""
    ill = {group for group, _ in truth}
    most: dict[str, float] = {}
    for grid in grids:
        if grid.group not in ill:
            cluster = cluster_of(grid.group)
            most[cluster] = max(most.get(cluster, 0.0), float(np.nanmax(deviations(grid))))
    return {
        g.group: {METRIC: dict.fromkeys(g.components, most[cluster_of(g.group)])}
        for g in grids
        if cluster_of(g.group) in most
    }


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy.perseus", description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?", default=Path("../shared/data/perseus_failslow"))
    directory: Path = parser.parse_args().directory
    truth = truth_of(directory)
    grids = grids_of(directory)
    drives = sum(len(grid.components) for grid in grids)
    print(f"{len(grids)} hosts, {drives} drives, {len(truth)} of them faulty\n\n{HEADER}", flush=True)

    def run(name: str, make: Maker, by_group: Mapping[str, ByMetric] | None = None) -> Result:
        result = result_of(grids, judgements(grids, by_group or {}, make), truth)
        print(result.row(name), flush=True)
        return result

    laggard = run("`laggard`", make_detector)
    for kind, name in (("ratio", "ratio to peers"), ("spread", "ratio over spread"), ("ewma", "its EWMA")):
        best = best_threshold(grids, kind, truth)
        run(f"{name}, best threshold {best:.2f}", ratio(kind, best))

    def cdf(settings: DetectSettings, metric: str) -> AnyDetector:
        return make_detector(replace(settings, detector="cdf"), metric)

    run("`cdf`, trained on each drive's first day", cdf, trained_on_own_day(grids))
    run("`cdf`, trained on healthy hosts of the cluster", cdf, trained_on_healthy_hosts(grids, truth))
    print(f"\n`laggard` alarmed, though healthy: {laggard.alarmed or 'none'}")
    print(f"\n{machine('numpy', 'scipy')}")


if __name__ == "__main__":
    main()
