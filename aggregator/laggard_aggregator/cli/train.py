"""`laggard train`: thresholds for trained detectors from fault-free data."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

from laggard_aggregator.cli.options import (
    add_input_options,
    add_window_options,
    count,
    csv_columns,
    settings_given,
)
from laggard_aggregator.detect import thresholds
from laggard_aggregator.detect.cdf.detector import CdfDetector, CdfOptions
from laggard_aggregator.detect.interface import FunctionWindow, GroupWindow
from laggard_aggregator.detect.laggard.detector import LaggardDetector
from laggard_aggregator.detect.manhattan.detector import ManhattanDetector
from laggard_aggregator.detect.settings import BinLimitMode, DetectSettings
from laggard_aggregator.detect.thresholds import ByMetric, Thresholds
from laggard_aggregator.offline.run import open_run, open_windows
from laggard_aggregator.offline.training import CdfTraining, Curves, ManhattanTraining, Unfit, unfit
from laggard_common.errors import ConfigError, InputError

EXAMPLES = """\
examples:
  laggard train /var/lib/laggard/archive -o thresholds.toml
  laggard train host_*.csv.xz --group-by file --load throughput -o thresholds.toml --plot awaits.png
  laggard train /var/lib/laggard/archive --detector manhattan -o functions.toml

A day of ordinary work without a fault is what the detectors want. Components that stand out in it are named
on stderr; their own thresholds will be too tolerant, those of the others are good.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard train`."""
    parser.epilog = EXAMPLES
    add_input_options(parser)
    add_window_options(parser, (CdfDetector.name, ManhattanDetector.name))
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, required=True, help="the thresholds, TOML"
    )
    parser.add_argument(
        "--bin-limit",
        metavar="N",
        type=_bin_limit,
        help=f"most bins of a histogram of cdf (default {CdfOptions().bin_limit})",
    )
    parser.add_argument(
        "--bin-limit-mode",
        choices=get_args(BinLimitMode),
        help="beyond the limit: wider bins, or the rest in the last one "
        f"(default {CdfOptions().bin_limit_mode})",
    )
    parser.add_argument(
        "--divided",
        action="store_true",
        help="manhattan: divide the sums of each function by its spread over healthy servers",
    )
    parser.add_argument("--plot", metavar="FILE", type=Path, help="a picture of the data, such as awaits.png")


def _bin_limit(text: str) -> int:
    limit = count(text)
    if limit > thresholds.MAX_BIN_LIMIT:
        raise argparse.ArgumentTypeError(f"expected at most {thresholds.MAX_BIN_LIMIT}, got {limit}")
    return limit


@dataclass(frozen=True, slots=True)
class _Trained:
    """Result of training: thresholds, outliers in the data, and the curves for a picture."""

    thresholds: Thresholds
    standing_out: Sequence[Unfit]
    curves: Curves | None = None


def run(args: argparse.Namespace) -> int:
    """Trains, then writes thresholds and picture. Raises LaggardError."""
    if args.plot is not None and find_spec("matplotlib") is None:
        raise ConfigError("--plot", ["matplotlib is not installed: pip install 'laggard[aggregator]'"])
    if not args.output.parent.is_dir():
        raise InputError(str(args.output), "cannot be written: no such directory")
    trained = _manhattan(args) if args.detector == ManhattanDetector.name else _cdf(args)
    thresholds.save(args.output, trained.thresholds)
    for each in trained.standing_out:
        print(
            f"laggard train: {each.group} {each.component} stands out in {each.metric}"
            f"{f', at times {each.severity:.2f} x its peers' if each.severity else ''}"
            ": is this data free of faults?",
            file=sys.stderr,
        )
    groups = trained.thresholds.groups.values()
    series = sum(len(known) for metrics in groups for known in metrics.values())
    print(f"{series} thresholds written to {args.output}")
    if args.plot is not None and trained.curves is not None:
        from laggard_aggregator.offline.plot import save_plot  # noqa: PLC0415 - an extra of its own

        save_plot(args.plot, trained.curves, trained.standing_out)
    return 0


def _cdf(args: argparse.Namespace) -> _Trained:
    if args.divided:
        raise ConfigError("", ["--divided goes with --detector manhattan"])
    columns, given = csv_columns(args), settings_given(args)
    default = CdfOptions()
    options = CdfOptions(
        bin_limit=args.bin_limit or default.bin_limit,
        bin_limit_mode=args.bin_limit_mode or default.bin_limit_mode,
    )
    training, curves = CdfTraining(options), Curves()
    settings: DetectSettings | None = None
    for window, used in open_windows(args.inputs, columns, {**given, "detector": CdfDetector.name}):
        if isinstance(window, GroupWindow):
            settings = settings or used
            _check_alike(args.inputs[0], settings, used)
            training.add(window, used.interval_seconds)
            curves.add(window)
    if settings is None or not training.series:
        raise _too_little(args.inputs[0])
    found = _thresholds(args, CdfDetector, settings, training.thresholds)
    found = replace(found, bin_limit=options.bin_limit, bin_limit_mode=options.bin_limit_mode)
    judged = open_run(args.inputs, columns, {**given, "detector": LaggardDetector.name}).judgements
    return _Trained(found, unfit(judged), curves)


def _manhattan(args: argparse.Namespace) -> _Trained:
    for option in ("plot", "bin_limit", "bin_limit_mode"):
        if getattr(args, option) is not None:
            raise ConfigError("", [f"--{option.replace('_', '-')} goes with --detector cdf"])
    columns, given = csv_columns(args), settings_given(args)

    def windows() -> Iterator[tuple[FunctionWindow, DetectSettings]]:
        for window, used in open_windows(args.inputs, columns, given):
            if isinstance(window, FunctionWindow):
                yield window, used

    training = ManhattanTraining(windows, divided=args.divided)
    if not training.thresholds:
        raise _too_little(args.inputs[0])
    for used in training.settings:
        _check_alike(args.inputs[0], training.settings[0], used)
    found = _thresholds(args, ManhattanDetector, training.settings[0], training.thresholds)
    found = replace(found, functions=training.functions)
    return _Trained(found, unfit(open_run(args.inputs, columns, given).judgements))


def _thresholds(
    args: argparse.Namespace,
    detector: type[CdfDetector | ManhattanDetector],
    settings: DetectSettings,
    groups: Mapping[str, ByMetric],
) -> Thresholds:
    default = DetectSettings()
    return Thresholds(
        detector=detector.name,
        version=detector.version,
        trained=datetime.now(UTC).isoformat(timespec="seconds"),
        sources=[path.name or str(path) for path in args.inputs],
        interval_seconds=settings.interval_seconds,
        window_samples=settings.window_samples,
        bin_limit=default.bin_limit,
        bin_limit_mode=default.bin_limit_mode,
        groups=groups,
    )


def _too_little(path: Path) -> InputError:
    return InputError(str(path), "no window has enough samples of enough peers to learn from")


def _check_alike(path: Path, one: DetectSettings, other: DetectSettings) -> None:
    """Raises InputError when the inputs' settings are incompatible."""
    if (one.interval_seconds, one.window_samples) != (other.interval_seconds, other.window_samples):
        raise InputError(str(path), "its groups have different windows: train them apart")
