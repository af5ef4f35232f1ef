"""One offline run: the user's inputs as a stream of judgements."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from laggard_aggregator.alarms.judge import Judge, Judgement
from laggard_aggregator.detect import registry
from laggard_aggregator.detect.interface import GroupWindow, Window
from laggard_aggregator.detect.own_history import DEMAND, MIN_PAST_SECONDS
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.detect.trained_thresholds import Thresholds
from laggard_aggregator.files.compressed import open_input
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.offline.csv_columns import CsvColumns
from laggard_aggregator.offline.csv_input import read_csv
from laggard_aggregator.offline.pcp_header import is_pcp
from laggard_aggregator.offline.pcp_input import read_pcp
from laggard_aggregator.offline.prometheus_input import Span, read_prometheus
from laggard_aggregator.offline.regrid import Rows, binned
from laggard_aggregator.offline.sample_grid import NS, Grid, windows_in_order
from laggard_aggregator.offline.sysstat.reader import is_sysstat, read_sysstat
from laggard_aggregator.prometheus.compare_map import CompareMap
from laggard_aggregator.prometheus.server import PrometheusServer
from laggard_common.errors import ConfigError, InputError

if TYPE_CHECKING:
    from laggard_aggregator.offline.archive_replay import ArchiveReplay

Progress = Callable[[str, float], None]
"""Gets a phase of the run, `reading` or `judging`, and its share done so far."""
Kind = Literal["archive", "sysstat", "pcp", "csv"]

WINDOWS = {"interval_seconds": "--interval", "window_samples": "--window", "shift_samples": "--shift"}


@dataclass(frozen=True, slots=True)
class Run:
    """Judgements in order of time, and the k of 2k - 1 of each group that was judged.

    `shown`: current names by component, where they differ. `idle`: components without activity, by group.
    `remarks`: about the data; `limits`: lines about their blind spots. All but `confirm` are complete after
    the last judgement.
    """

    judgements: Iterator[Judgement]
    confirm: Callable[[str], int]
    shown: Mapping[str, str] = field(default_factory=dict)
    topology: Callable[[], Topology] = Topology
    idle: Callable[[], Mapping[str, Collection[str]]] = dict
    remarks: Sequence[str] = ()
    limits: Sequence[str] = ()


class _Activity:
    """Components by group, and whether a metric was above 0 in any window."""

    def __init__(self) -> None:
        self._active: dict[str, dict[str, bool]] = {}

    def add(self, window: Window) -> None:
        """Adds a window."""
        if isinstance(window, GroupWindow):
            known = self._active.setdefault(window.group, {})
            active = np.any(
                [(v[:, window.history :] > 0).any(axis=1) for v in window.metrics.values()], axis=0
            )
            for name, is_active in zip(window.components, active, strict=True):
                known[name] = bool(is_active) or known.get(name, False)

    def idle(self) -> Mapping[str, Collection[str]]:
        """The components that never were active, by group."""
        return {
            group: [n for n, active in activity.items() if not active]
            for group, activity in self._active.items()
        }


def open_run(
    paths: Sequence[Path],
    columns: CsvColumns,
    given: Mapping[str, Any],
    trained: Thresholds | None = None,
    *,
    by_shadows: bool = False,
    topology: Topology | None = None,
    progress: Progress | None = None,
) -> Run:
    """The run over `paths`; `given` are fields of DetectSettings that differ from default or recorded ones.

    `by_shadows`: groups of an archive with a shadow are judged by it.
    Raises InputError for inputs that cannot be read, ConfigError for settings that do not fit them.
    """
    if kind_of(paths) == "archive":
        activity = _Activity()
        replay = _replay(paths[0], given, _adjustment(given, trained, by_shadows), topology)
        judgements = _replayed(replay, activity, progress)
        return Run(judgements, replay.confirm, replay.shown, lambda: replay.topology, activity.idle)
    if by_shadows:
        raise ConfigError("", ["--shadow: INPUT must be an archive"])
    settings = _without_functions(given)
    _check_thresholds(trained, settings)
    remarks: list[str] = []
    grids = read_grids(paths, columns, settings, remarks, progress)
    return run_grids(grids, settings, trained, topology=topology, remarks=remarks, progress=progress)


def open_prometheus(  # noqa: PLR0917
    server: PrometheusServer,
    compare_map: CompareMap,
    span: Span,
    given: Mapping[str, Any],
    trained: Thresholds | None = None,
    topology: Topology | None = None,
    progress: Progress | None = None,
) -> Run:
    """The run over `span` of a Prometheus server; else as `open_run`. Raises ServiceError, too."""
    settings = _without_functions({**given, "interval_seconds": span.interval_seconds})
    _check_thresholds(trained, settings)
    remarks: list[str] = []
    advance = partial(progress, "reading") if progress else lambda _: None
    grids = list(read_prometheus(server, compare_map, span, settings.shift_samples, remarks, advance))
    return run_grids(grids, settings, trained, topology=topology, remarks=remarks, progress=progress)


def run_grids(
    grids: Sequence[Grid],
    settings: DetectSettings,
    trained: Thresholds | None = None,
    *,
    topology: Topology | None = None,
    remarks: Sequence[str] = (),
    progress: Progress | None = None,
) -> Run:
    """The run over `grids`, all groups by the same settings."""
    activity, shared = _Activity(), topology or Topology()
    judgements = _judged(grids, settings, trained, shared, activity, progress)
    detector = registry.find(settings.detector)
    limits = () if detector.by_itself else tuple(_blind_to_groups(grids))
    return Run(judgements, lambda _: settings.confirm, {}, lambda: shared, activity.idle, remarks, limits)


def _blind_to_groups(grids: Sequence[Grid]) -> Iterator[str]:
    """A line where the data cannot show that a whole group is slower than in its own past."""
    said = "a group that slows down as a whole is not noticed"
    if not any(grid.load.keys() & DEMAND for grid in grids):
        yield f"without the load (operations or throughput), {said}"
        return
    longest = max(
        (np.ptp(g.blocks) * g.block_samples * g.interval_ns / NS for g in grids if g.blocks.size), default=0
    )
    if longest < MIN_PAST_SECONDS:
        yield f"with a past of less than {MIN_PAST_SECONDS / 3600:.0f} hours, {said}"


def _replay(
    path: Path,
    given: Mapping[str, Any],
    adjust: Callable[[str, DetectSettings], DetectSettings],
    topology: Topology | None = None,
) -> "ArchiveReplay":
    # Imported here: pyarrow's datasets and the machine take memory that other inputs need.
    from laggard_aggregator.archive.reader import ArchiveReader  # noqa: PLC0415
    from laggard_aggregator.offline.archive_replay import ArchiveReplay  # noqa: PLC0415

    return ArchiveReplay(ArchiveReader(path), adjust, topology, _chosen_by(given))


def _replayed(replay: "ArchiveReplay", activity: _Activity, progress: Progress | None) -> Iterator[Judgement]:
    advance = None if progress is None else partial(progress, "judging")
    for window, machine in replay.windows(advance):
        activity.add(window)
        yield from machine.judge.evaluate(window)


def open_windows(
    paths: Sequence[Path], columns: CsvColumns, given: Mapping[str, Any]
) -> Iterator[tuple[Window, DetectSettings]]:
    """The windows over `paths` as the detector in `given` wants them, with their group's settings.

    Raises as `open_run`.
    """
    if kind_of(paths) == "archive":
        replay = _replay(paths[0], given, _adjustment(given, None))
        for window, machine in replay.windows():
            yield window, machine.groups[window.group].detect
        return
    settings = _without_functions(given)
    grids = read_grids(paths, columns, settings)
    judge = Judge({grid.group: settings for grid in grids})
    for window in windows_in_order(grids, settings.window_samples, _history(judge, grids)):
        yield window, settings


def _judged(  # noqa: PLR0917
    grids: Sequence[Grid],
    settings: DetectSettings,
    trained: Thresholds | None,
    topology: Topology,
    activity: _Activity,
    progress: Progress | None,
) -> Iterator[Judgement]:
    """Yields the judgements of all windows of `grids`, all groups by the same settings, by window end.

    The number of series in `grids` replaces the settings' `tests_at_once`; `trained` adds each group's
    thresholds. `progress` gets the share of the windows done so far.
    """
    series = sum(len(grid.components) * len(grid.metrics) for grid in grids)
    settings = replace(settings, tests_at_once=max(series, 1))
    judge = Judge({}, topology=topology)
    for grid in grids:
        judge.add_group(grid.group, trained.applied(settings, grid.group) if trained else settings)
    history = _history(judge, grids)
    total = sum(grid.window_ends(settings.window_samples).size for grid in grids)
    for done, window in enumerate(windows_in_order(list(grids), settings.window_samples, history), 1):
        activity.add(window)
        yield from judge.evaluate(window)
        if progress is not None:
            progress("judging", done / total)


def _history(judge: Judge, grids: Sequence[Grid]) -> dict[str, int]:
    """Number of samples before a window that the detectors of each grid's group need."""
    return {
        grid.group: max(judge.history_samples(grid.group, metric) for metric in grid.metrics)
        for grid in grids
    }


def read_grids(
    paths: Sequence[Path],
    columns: CsvColumns,
    settings: DetectSettings,
    remarks: list[str] | None = None,
    progress: Progress | None = None,
) -> list[Grid]:
    """The grids of CSV, PCP or sysstat files; adds to `remarks` about the data. Raises InputError."""
    rows: Iterator[Rows]
    kind, advance = kind_of(paths), _share_read(paths, progress)
    if kind == "sysstat":
        by_file = columns.group_by == "file"
        rows = read_sysstat(paths, settings.interval_seconds, by_file, zone=columns.zone, remarks=remarks)
    elif kind == "pcp":
        rows = read_pcp(paths, columns, settings.interval_seconds, remarks, advance)
    else:
        rows = read_csv(paths, columns, remarks, advance)
    interval_ns = round(settings.interval_seconds * NS)
    return [binned(part, interval_ns, settings.shift_samples) for part in rows]


def _share_read(paths: Sequence[Path], progress: Progress | None) -> Callable[[int], None]:
    """Adds numbers of bytes read and reports their share of those of `paths`."""
    total = max(sum(path.stat().st_size for path in set(paths) if path.is_file()), 1)
    read = 0

    def advance(count: int) -> None:
        nonlocal read
        read += count
        if progress is not None:
            progress("reading", min(read / total, 1.0))

    return advance


def kind_of(paths: Sequence[Path]) -> Kind:
    """The common format of all `paths`. Raises InputError if they are unreadable or their formats differ."""
    first = _kind(paths[0])
    for path in paths[1:]:
        kind = _kind(path)
        if kind != first:
            raise InputError(str(path), f"{kind} input among {first} input: one run takes one kind")
    if first == "archive" and len(paths) > 1:
        raise InputError(str(paths[1]), "one run takes one archive")
    return first


_PCP_MAGIC = b"\x50\x05\x26"
"""Behind the length of the first record of each file of an archive."""
_PMREP_TEXT = re.compile(rb"(?:\s*(?:[a-z]\.)+[a-z_]+)+\s*\n|(?:disk|hinv|kernel)\.\w+\.\w+ +\[")
_PMREP = "-r -o csv -Z UTC disk.dev (docs/diagnose.md)"


def _kind(path: Path) -> Kind:
    if path.is_dir():
        from laggard_aggregator.archive.layout import is_archive  # noqa: PLC0415

        if not is_archive(path):
            raise InputError(str(path), "is a directory and not a Laggard archive, expected files")
        return "archive"
    with open_input(path, cut=lambda _: None) as file:
        head = file.read(4096)
    if is_pcp(head):
        return "pcp"
    if is_sysstat(head):
        return "sysstat"
    if head[4:7] == _PCP_MAGIC:
        raise InputError(str(path), f"an archive of PCP: print it with pmrep -a {path} {_PMREP}")
    if _PMREP_TEXT.match(head):
        raise InputError(str(path), f"text of PCP: print CSV, with pmrep {_PMREP}")
    if b"\0" in head:
        raise InputError(str(path), "a binary file, expected CSV or a sysstat activity file")
    return "csv"


def _adjustment(
    given: Mapping[str, Any], trained: Thresholds | None, by_shadows: bool = False
) -> Callable[[str, DetectSettings], DetectSettings]:
    """Changes that options make to an archive's recorded settings. A group is judged by one detector."""
    fixed = [option for name, option in WINDOWS.items() if name in given]
    if fixed:
        raise ConfigError(
            "", [f"{option}: the windows of an archive are as they were closed" for option in fixed]
        )

    def adjust(group: str, recorded: DetectSettings) -> DetectSettings:
        detector = recorded.shadow if by_shadows and recorded.shadow is not None else recorded
        settings = replace(detector, **given, shadow=None)
        _check_thresholds(trained, settings)
        return settings if trained is None else trained.applied(settings, group)

    return adjust


def _chosen_by(given: Mapping[str, Any]) -> Callable[[DetectSettings], bool]:
    """Selects the archive's groups that the detector in `given` can judge; without one each keeps its own."""
    if "detector" not in given:
        return lambda _: True
    wanted = registry.find(given["detector"])

    def judged(recorded: DetectSettings) -> bool:
        own = registry.find(recorded.detector)
        return (own.compares, own.by_itself) == (wanted.compares, wanted.by_itself)

    return judged


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
