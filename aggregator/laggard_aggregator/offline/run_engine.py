"""Judges grids with the engine of the running aggregator."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from laggard_aggregator.alarms.judge import Judge, Judgement
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.detect.thresholds import Thresholds
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.offline.sample_grid import Grid, windows_in_order


def tests_at_once(grids: Sequence[Grid]) -> int:
    """Number of component-metric series that share the operator's false-alarm budget."""
    return sum(len(grid.components) * len(grid.metrics) for grid in grids)


def judge(
    grids: Sequence[Grid],
    settings: DetectSettings,
    trained: Thresholds | None,
    topology: Topology | None,
    progress: Callable[[float], None] | None,
) -> Iterator[Judgement]:
    """Yields the judgements of all windows of `grids`, all groups by the same settings, by window end.

    The number of series in `grids` replaces the settings' `tests_at_once`; `trained` adds each group's
    thresholds. `progress` gets the share of the windows done so far.
    """
    settings = replace(settings, tests_at_once=max(tests_at_once(grids), 1))
    engine = Judge({}, topology=topology)
    for grid in grids:
        engine.add_group(grid.group, trained.applied(settings, grid.group) if trained else settings)
    history = history_of(engine, grids)
    total = sum(grid.window_ends(settings.window_samples).size for grid in grids)
    for done, window in enumerate(windows_in_order(list(grids), settings.window_samples, history), 1):
        yield from engine.evaluate(window)
        if progress is not None:
            progress(done / total)


def history_of(engine: Judge, grids: Sequence[Grid]) -> dict[str, int]:
    """Number of samples before a window that the detectors of each grid's group need."""
    return {
        grid.group: max(engine.history_samples(grid.group, metric) for metric in grid.metrics)
        for grid in grids
    }
