"""Runs the entries over all groups: thresholds, results, CPU time."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.leaderboard.entries import TUNED, Entry
from bench.leaderboard.scoring import Fault, Result, best_threshold, drive_peaks
from bench.leaderboard.series import Scores, Series
from laggard_aggregator.detect.interface import BoolArray

ClusterOf = Callable[[str], str]
"""Which hardware a group is of: thresholds are tuned for each, and drives counted by it."""


@dataclass(slots=True)
class Row:
    """What became of an entry: its alarm threshold and result by cluster, CPU seconds a million samples."""

    entry: Entry
    thresholds: Mapping[str, float]
    cpu_seconds: float
    total: Result = field(default_factory=Result)
    clusters: dict[str, Result] = field(default_factory=dict)

    @property
    def rank(self) -> tuple[float, float, float]:
        """The best come first: F1 of drives, then false alarms, then F1 of windows."""
        return -self.total.drives.f1, self.total.false_alarms_a_week, -self.total.windows.f1


def by_score(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """The entries, those with one score together, so that it is computed once."""
    groups: dict[int, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(id(entry.score), []).append(entry)
    yield from groups.values()


def rank(
    all_series: Sequence[Series], faults: Sequence[Fault], entries: Sequence[Entry], cluster_of: ClusterOf
) -> list[Row]:
    """The rows of all entries, the best first."""
    rows = []
    samples = sum(int(np.isfinite(series.latency).sum()) for series in all_series)
    for together in by_score(entries):
        began = time.process_time()
        scores = [together[0].score(series) for series in all_series]
        cpu_seconds = (time.process_time() - began) / max(samples, 1) * 1e6
        for entry in together:
            thresholds = _thresholds(entry, all_series, scores, faults, cluster_of)
            row = Row(entry, thresholds, cpu_seconds)
            for series, scored in zip(all_series, scores, strict=True):
                cluster = cluster_of(series.grid.group)
                least = thresholds[cluster]
                slow = scored.windows >= (least if entry.windows is TUNED else entry.windows)
                for result in (row.total, row.clusters.setdefault(cluster, Result())):
                    result.add(series, faults, scored.alarms >= least, slow)
            rows.append(row)
    return sorted(rows, key=lambda row: row.rank)


def standing(series: Series, rows: Sequence[Row], cluster_of: ClusterOf) -> dict[str, BoolArray]:
    """Whose alarm stands after each interval (C, T), by the entry's name."""
    found, known = {}, {row.entry.name: row for row in rows}
    for together in by_score([row.entry for row in rows]):
        scored = together[0].score(series)
        for entry in together:
            least = known[entry.name].thresholds[cluster_of(series.grid.group)]
            found[entry.name] = scored.alarms >= least
    return found


def _thresholds(
    entry: Entry,
    all_series: Sequence[Series],
    scores: Sequence[Scores],
    faults: Sequence[Fault],
    cluster_of: ClusterOf,
) -> dict[str, float]:
    """The alarm threshold of each cluster."""
    clusters = [cluster_of(series.grid.group) for series in all_series]
    if entry.threshold is not TUNED:
        return dict.fromkeys(clusters, entry.threshold)
    peaks = [drive_peaks(series, faults, scored) for series, scored in zip(all_series, scores, strict=True)]
    found = {}
    for cluster in clusters:
        own = [peak for peak, name in zip(peaks, clusters, strict=True) if name == cluster]
        highest, faulty = (np.concatenate(each) for each in zip(*own, strict=True))
        found[cluster] = best_threshold(highest, faulty)
    return found
