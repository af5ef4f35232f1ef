"""`laggard train`: thresholds for the detectors that need them, from data without faults."""

import argparse
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

from laggard_aggregator import thresholds
from laggard_aggregator.cli.options import (
    add_input_options,
    add_window_options,
    count,
    csv_columns,
    settings_given,
)
from laggard_aggregator.detect.cdf import CdfDetector, CdfOptions
from laggard_aggregator.detect.settings import BinLimitMode, DetectSettings
from laggard_aggregator.offline.run import open_run, open_windows
from laggard_aggregator.offline.training import CdfTraining, Curves, unfit
from laggard_aggregator.thresholds import Thresholds
from laggard_common.errors import ConfigError, InputError

EXAMPLES = """\
examples:
  laggard train /var/lib/laggard/archive -o thresholds.toml
  laggard train host_*.csv.xz --group-by file --load throughput -o thresholds.toml --plot awaits.png

A day of ordinary work without a fault is what the detectors want. Components that stand out in it are named
on stderr; their own thresholds will be too tolerant, those of the others are good.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard train`."""
    parser.epilog = EXAMPLES
    add_input_options(parser)
    add_window_options(parser, (CdfDetector.name,))
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, required=True, help="the thresholds, TOML"
    )
    parser.add_argument(
        "--bin-limit",
        metavar="N",
        type=_bin_limit,
        default=CdfOptions().bin_limit,
        help="most bins of a histogram (default %(default)s)",
    )
    parser.add_argument(
        "--bin-limit-mode",
        choices=get_args(BinLimitMode),
        default=CdfOptions().bin_limit_mode,
        help="beyond the limit: wider bins, or the rest in the last one (default %(default)s)",
    )
    parser.add_argument("--plot", metavar="FILE", type=Path, help="a picture of the data, such as awaits.png")


def _bin_limit(text: str) -> int:
    limit = count(text)
    if limit > thresholds.MAX_BIN_LIMIT:
        raise argparse.ArgumentTypeError(f"expected at most {thresholds.MAX_BIN_LIMIT}, got {limit}")
    return limit


def run(args: argparse.Namespace) -> int:
    """Trains, and writes thresholds and picture. Raises LaggardError."""
    if args.plot is not None and find_spec("matplotlib") is None:
        raise ConfigError("--plot", ["matplotlib is not installed: pip install 'laggard[plot]'"])
    if not args.output.parent.is_dir():
        raise InputError(str(args.output), "cannot be written: no such directory")
    columns, given = csv_columns(args), settings_given(args)
    opened = open_windows(args.inputs, columns, {**given, "detector": CdfDetector.name})
    options = CdfOptions(bin_limit=args.bin_limit, bin_limit_mode=args.bin_limit_mode)
    training, curves = CdfTraining(options), Curves()
    settings = None
    for window, used in opened:
        if settings is not None and not _alike(settings, used):
            raise InputError(str(args.inputs[0]), "its groups have different windows: train them apart")
        settings = used
        training.add(window, used.interval_seconds)
        curves.add(window)
    if settings is None or not training.series:
        raise InputError(str(args.inputs[0]), "no window has enough samples of enough peers to learn from")
    standing_out = unfit(open_run(args.inputs, columns, {**given, "detector": "laggard"}).judgements)
    thresholds.save(
        args.output,
        Thresholds(
            detector=CdfDetector.name,
            version=CdfDetector.version,
            trained=datetime.now(UTC).isoformat(timespec="seconds"),
            sources=[path.name or str(path) for path in args.inputs],
            interval_seconds=settings.interval_seconds,
            window_samples=settings.window_samples,
            bin_limit=options.bin_limit,
            bin_limit_mode=options.bin_limit_mode,
            groups=training.thresholds,
        ),
    )
    for each in standing_out:
        print(
            f"laggard train: {each.group} {each.component} stands out in {each.metric}, "
            f"at times {each.severity:.2f} x its peers: is this data free of faults?",
            file=sys.stderr,
        )
    print(f"{training.series} thresholds written to {args.output}")
    if args.plot is not None:
        from laggard_aggregator.offline.plot import save_plot  # noqa: PLC0415 - an extra of its own

        save_plot(args.plot, curves, standing_out)
    return 0


def _alike(one: DetectSettings, other: DetectSettings) -> bool:
    """Whether thresholds of one hold for the other."""
    return (one.interval_seconds, one.window_samples) == (other.interval_seconds, other.window_samples)
