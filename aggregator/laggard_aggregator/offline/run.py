"""One offline run: the user's inputs as a stream of judgements."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from laggard_aggregator.alarms.judge import Judge, Judgement
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.detect import registry
from laggard_aggregator.detect.interface import Window
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.detect.thresholds import Thresholds
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.offline.archive_replay import ArchiveReplay
from laggard_aggregator.offline.csv_input import CsvColumns, read_csv
from laggard_aggregator.offline.detect_format import kind_of
from laggard_aggregator.offline.regrid import Rows, binned
from laggard_aggregator.offline.run_engine import history_of, judge
from laggard_aggregator.offline.sample_grid import NS, Grid, windows_in_order
from laggard_aggregator.offline.sysstat_input import read_sysstat
from laggard_common.errors import ConfigError

Progress = Callable[[float], None]

WINDOWS = {"interval_seconds": "--interval", "window_samples": "--window", "shift_samples": "--shift"}


@dataclass(frozen=True, slots=True)
class Run:
    """Judgements in order of time, and the k of 2k - 1 of each group that was judged.

    `shown`: current names by component, where they differ. It and `topology` are complete after the last
    judgement.
    """

    judgements: Iterator[Judgement]
    confirm: Callable[[str], int]
    shown: Mapping[str, str] = field(default_factory=dict)
    topology: Callable[[], Topology] = Topology


def open_run(
    paths: Sequence[Path],
    columns: CsvColumns,
    given: Mapping[str, Any],
    trained: Thresholds | None = None,
    *,
    topology: Topology | None = None,
    progress: Progress | None = None,
) -> Run:
    """The run over `paths`; `given` are fields of DetectSettings that differ from default or recorded ones.

    Raises InputError for inputs that cannot be read, ConfigError for settings that do not fit them.
    """
    if kind_of(paths) == "archive":
        replay = ArchiveReplay(
            ArchiveReader(paths[0]), _adjustment(given, trained), topology, _judged_by(given)
        )
        return Run(replay.judgements(progress), replay.confirm, replay.shown, lambda: replay.topology)
    settings = _without_functions(given)
    _check_thresholds(trained, settings)
    grids = read_grids(paths, columns, settings)
    judgements = judge(grids, settings, trained, topology, progress)
    return Run(judgements, lambda _: settings.confirm, topology=lambda: topology or Topology())


def open_windows(
    paths: Sequence[Path], columns: CsvColumns, given: Mapping[str, Any]
) -> Iterator[tuple[Window, DetectSettings]]:
    """The windows over `paths` as the detector in `given` wants them, with their group's settings.

    Raises as `open_run`.
    """
    if kind_of(paths) == "archive":
        replay = ArchiveReplay(ArchiveReader(paths[0]), _adjustment(given, None), judged=_judged_by(given))
        for window, pipeline in replay.windows():
            yield window, pipeline.groups[window.group].detect
        return
    settings = _without_functions(given)
    grids = read_grids(paths, columns, settings)
    engine = Judge({grid.group: settings for grid in grids})
    for window in windows_in_order(grids, settings.window_samples, history_of(engine, grids)):
        yield window, settings


def read_grids(paths: Sequence[Path], columns: CsvColumns, settings: DetectSettings) -> list[Grid]:
    """The grids of CSV or sysstat files. Raises InputError."""
    rows: Iterator[Rows]
    if kind_of(paths) == "sysstat":
        rows = read_sysstat(paths, settings.interval_seconds, columns.group_by == "file")
    else:
        rows = read_csv(paths, columns)
    interval_ns = round(settings.interval_seconds * NS)
    return [binned(each, interval_ns, settings.shift_samples) for each in rows]


def _adjustment(
    given: Mapping[str, Any], trained: Thresholds | None
) -> Callable[[str, DetectSettings], DetectSettings] | None:
    """Changes that options make to an archive's recorded settings; None without a change."""
    fixed = [option for name, option in WINDOWS.items() if name in given]
    if fixed:
        raise ConfigError(
            "", [f"{option}: the windows of an archive are as they were closed" for option in fixed]
        )
    if not given and trained is None:
        return None

    def adjust(group: str, recorded: DetectSettings) -> DetectSettings:
        settings = replace(recorded, **given)
        _check_thresholds(trained, settings)
        return settings if trained is None else trained.applied(settings, group)

    return adjust


def _judged_by(given: Mapping[str, Any]) -> Callable[[DetectSettings], bool]:
    """Selects the archive's groups that the detector in `given` can judge; without one each keeps its own."""
    if "detector" not in given:
        return lambda _: True
    compares = registry.find(given["detector"]).compares
    return lambda recorded: registry.find(recorded.detector).compares == compares


def _without_functions(given: Mapping[str, Any]) -> DetectSettings:
    """The settings in `given`, for inputs that have metrics. Raises ConfigError for another detector."""
    settings = replace(DetectSettings(), **given)
    if registry.find(settings.detector).compares == "functions":
        raise ConfigError(
            "", [f"--detector {settings.detector} compares functions: INPUT must be an archive"]
        )
    return settings


def _check_thresholds(trained: Thresholds | None, settings: DetectSettings) -> None:
    """Raises ConfigError when `trained` is for another detector, version, interval or window."""
    if trained is not None:
        problems = trained.mismatches(settings, registry.find(settings.detector).version)
        if problems:
            raise ConfigError("--thresholds", problems)
