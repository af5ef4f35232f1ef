"""One offline run: whatever the user named, as a stream of judgements."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from laggard_aggregator.detect.registry import make_detector
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.engine import Judgement
from laggard_aggregator.offline.binning import Rows, binned
from laggard_aggregator.offline.csv_input import CsvColumns, read_csv
from laggard_aggregator.offline.grid import NS, Grid
from laggard_aggregator.offline.judge import judge
from laggard_aggregator.offline.kinds import kind_of
from laggard_aggregator.offline.sysstat_input import read_sysstat
from laggard_aggregator.thresholds import Thresholds
from laggard_common.errors import ConfigError, InputError

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Run:
    """Judgements in order of time, and the k of 2k - 1 of each group."""

    judgements: Iterator[Judgement]
    confirm: Callable[[str], int]


def open_run(
    paths: Sequence[Path],
    columns: CsvColumns,
    given: Mapping[str, Any],
    trained: Thresholds | None,
    progress: Progress | None,
) -> Run:
    """The run over `paths`; `given` are fields of DetectSettings that differ from default or recorded ones.

    Raises InputError for inputs that cannot be read, ConfigError for thresholds of other windows.
    """
    if kind_of(paths) == "archive":
        raise InputError(str(paths[0]), "replay of an archive is not there yet")
    settings = replace(DetectSettings(), **given)
    if trained is not None:
        check_thresholds(trained, settings)
    grids = read_grids(paths, columns, settings)
    return Run(
        judge(grids, settings, trained.groups if trained else {}, progress), lambda _: settings.confirm
    )


def check_thresholds(trained: Thresholds, settings: DetectSettings) -> None:
    """Raises ConfigError when `trained` is for another detector, version, interval or window."""
    problems = trained.mismatches(settings, make_detector(settings, "").version)
    if problems:
        raise ConfigError("thresholds", problems)


def read_grids(paths: Sequence[Path], columns: CsvColumns, settings: DetectSettings) -> list[Grid]:
    """The grids of CSV or sysstat files. Raises InputError."""
    rows: Iterator[Rows]
    if kind_of(paths) == "sysstat":
        rows = read_sysstat(paths, settings.interval_seconds, columns.group_by == "file")
    else:
        rows = read_csv(paths, columns)
    interval_ns = round(settings.interval_seconds * NS)
    return [binned(each, interval_ns, settings.shift_samples) for each in rows]
