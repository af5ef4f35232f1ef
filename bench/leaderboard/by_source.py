"""The labelled and the slowed drives, by where their series come from: files, or a server's exporters."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.accuracy.injected import healthy_part, injected_faults
from bench.accuracy.perseus import cluster_of, delay_text
from bench.leaderboard.entries import TUNED, own, published, usable
from bench.leaderboard.ranking import Row, rank
from bench.leaderboard.scoring import Fault
from bench.leaderboard.scraped import SOURCES, scraped_settings, through_prometheus
from bench.leaderboard.series import Series
from bench.leaderboard.slowed import cases
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.offline.sample_grid import Grid

FILES = "the files"
HEADINGS = (
    *("source", "detector", "drives: precision / recall / F1", "windows F1"),
    *("first alarm, min: median / 90 %", "false alarms a drive-week"),
    *("slowed: found", "first alarm, min: median / 90 %", "others named"),
)


@dataclass(frozen=True)
class Drives:
    """Groups with labelled drives, and copies of groups of healthy ones in which a drive becomes slow."""

    labelled: Sequence[Grid]
    faults: Sequence[Fault]
    slowed: Sequence[Grid]
    onsets: Sequence[Fault]


def drives_of(grids: Sequence[Grid], truth: set[tuple[str, str]], trials: int, seed: int) -> Drives:
    """The labelled groups, and `trials` drives made slow of each case: of two evenings, the second."""
    slowed: list[Grid] = []
    onsets: list[Fault] = []
    healthy = [healthy_part(grid, truth) for grid in grids]
    for number, case in enumerate(cases(trials)):
        for trial in injected_faults(replace(case, days=2), healthy, np.random.default_rng((seed, number))):
            group = f"{trial.grid.group}-{len(slowed)}"
            slowed.append(replace(trial.changed, group=group))
            onsets += [Fault(group, trial.grid.components[row], trial.onset) for row in trial.rows]
    return Drives(grids, [Fault(*drive) for drive in sorted(truth)], slowed, onsets)


def source_table(drives: Drives, settings: DetectSettings, only: str) -> Iterator[list[str]]:
    """Yields the headings, then a row for each source and detector with `only` in its name."""
    yield list(HEADINGS)
    every = [*drives.labelled, *drives.slowed]
    yield from _rows(FILES, every, drives, settings, only)
    scraped = scraped_settings(settings)
    for source in SOURCES:
        read = list(through_prometheus(source, every, scraped))
        yield from _rows(f"`{source.map_name}`: {source.table_name}", read, drives, scraped, only)


def _rows(
    name: str, grids: Sequence[Grid], drives: Drives, settings: DetectSettings, only: str
) -> Iterator[list[str]]:
    entries = usable(
        [*own(settings), *published()], with_load=all("throughput" in grid.load for grid in grids)
    )
    # A threshold from the labels of the one would be none of the other.
    entries = [one for one in entries if one.threshold is not TUNED and only.lower() in one.name.lower()]
    ranked: list[list[Row]] = []
    for part, faults in ((drives.labelled, drives.faults), (drives.slowed, drives.onsets)):
        groups = {grid.group for grid in part}
        series = [Series(grid) for grid in grids if grid.group in groups]
        ranked.append(rank(series, faults, entries, cluster_of))
    labelled, slowed = ranked
    by_name = {row.entry.name: row.total for row in slowed}
    for row in labelled:
        total, after = row.total, by_name[row.entry.name]
        found = after.drives.right
        yield [
            name,
            row.entry.name,
            str(total.drives),
            f"{total.windows.f1:.3f}",
            delay_text(total.delays, (0.5, 0.9)),
            f"{total.false_alarms_a_week:.2f}",
            f"{found} of {found + after.drives.missed}",
            delay_text(after.delays, (0.5, 0.9)),
            str(after.drives.wrong),
        ]
