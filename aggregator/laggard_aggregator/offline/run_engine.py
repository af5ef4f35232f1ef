"""Grids through the engine: the verdicts that the running aggregator would have given."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from laggard_aggregator.alarms.judge import Engine, Judgement
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.detect.thresholds import Thresholds
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.offline.sample_grid import Grid, windows_in_order


def tests_at_once(grids: Sequence[Grid]) -> int:
    """How many component-metric series share the operator's budget of false alarms."""
    return sum(len(grid.components) * len(grid.metrics) for grid in grids)


def judge(
    grids: Sequence[Grid],
    settings: DetectSettings,
    trained: Thresholds | None,
    topology: Topology | None,
    progress: Callable[[float], None] | None,
) -> Iterator[Judgement]:
    """The judgements of all windows of `grids`, all groups by the same settings, in order of windows' ends.

    Settings' `tests_at_once` is replaced by the number of series in `grids`, `trained` adds
    each group's thresholds. `progress` is told the share of the windows that is done.
    """
    settings = replace(settings, tests_at_once=max(tests_at_once(grids), 1))
    engine = Engine({}, topology=topology)
    for grid in grids:
        engine.add_group(grid.group, trained.applied(settings, grid.group) if trained else settings)
    history = history_of(engine, grids)
    total = sum(grid.window_ends(settings.window_samples).size for grid in grids)
    for done, window in enumerate(windows_in_order(list(grids), settings.window_samples, history), 1):
        yield from engine.judge(window)
        if progress is not None:
            progress(done / total)


def history_of(engine: Engine, grids: Sequence[Grid]) -> dict[str, int]:
    """How many samples before a window the detectors of each grid's group want to see."""
    return {
        grid.group: max(engine.history_samples(grid.group, metric) for metric in grid.metrics)
        for grid in grids
    }
