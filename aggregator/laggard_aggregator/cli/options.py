"""Options of `laggard diagnose`, `init`, `train` and `archive`; imports none of them."""

import argparse
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from laggard_aggregator.detect.settings import (
    DetectSettings,
    TrainingOption,
    peer_detector_names,
    training_options,
)
from laggard_aggregator.offline.csv_columns import CsvColumns
from laggard_aggregator.offline.zone import find_zone
from laggard_common.errors import ConfigError

_COLUMNS = CsvColumns()
_SETTINGS = DetectSettings()
_DIAGNOSE_EXAMPLES = """\
examples:
  laggard diagnose /var/lib/laggard/archive
  laggard diagnose sa20 sa21 --interval 600 --window 12 --shift 6
  laggard diagnose host_*.csv.xz --time-column ts --component-column disk_id --metric latency \\
      --load throughput --group-by file --interval 15 --window 20 --shift 20 --json -o found.jsonl
  laggard diagnose --prometheus http://prometheus:9090 --from -7d
"""
_TRAIN_EXAMPLES = """\
examples:
  laggard train /var/lib/laggard/archive -o thresholds.toml
  laggard train host_*.csv.xz --group-by file --load throughput -o thresholds.toml --plot awaits.png
  laggard train /var/lib/laggard/archive --detector manhattan -o functions.toml

A day of ordinary work without a fault is what the detectors want. Components that stand out in it are named
on stderr; their own thresholds will be too tolerant, those of the others are good.
"""
_ARCHIVE_EXAMPLES = """\
examples:
  laggard archive verify /var/lib/laggard/archive
"""


def add_diagnose_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard diagnose`."""
    add = parser.add_argument
    parser.epilog = _DIAGNOSE_EXAMPLES
    _add_input_options(parser, "*")
    _add_prometheus_options(parser)
    _add_window_options(parser, peer_detector_names())
    add("--confirm", metavar="K", type=count, help="straggler after K of 2K-1 windows (default 3)")
    add("--false-alarms", metavar="F", type=positive, help="a week, over all inputs together (default 1)")
    add("--thresholds", metavar="FILE", type=Path, help="from laggard train, for cdf and manhattan")
    add("--shadow", action="store_true", help="judge an archive's groups by their shadow detectors")
    add("--topology", metavar="FILE", type=Path, help="[[topology]] tables: who shares a parent")
    add("--windows", action="store_true", help="print every window too")
    add("--check", action="store_true", help="exit with 1 when there is a straggler, for scripts")
    add_local(parser)
    add("--json", action="store_true", help="print records, one JSON object a line")
    add("--format", choices=("table", "json"), help=argparse.SUPPRESS)  # the spelling of 0.1
    add("-o", "--output", metavar="FILE", type=Path, help="write there, and only on success")


def add_train_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard train`."""
    parser.epilog = _TRAIN_EXAMPLES
    _add_input_options(parser, "+")
    trainable = training_options()
    _add_window_options(parser, list(trainable))
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, required=True, help="the thresholds, TOML"
    )
    for options in trainable.values():
        for option in options:
            _add_option(parser, option)
    parser.add_argument("--plot", metavar="FILE", type=Path, help="draw the data, such as awaits.png")


def add_archive_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard archive`."""
    parser.epilog = _ARCHIVE_EXAMPLES
    parser.add_argument(
        "action", choices=("verify",), help="name the damaged files; exit with 1 when there are any"
    )
    parser.add_argument("directory", metavar="DIR", type=Path, help="the archive's folder")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def _add_option(parser: argparse.ArgumentParser, option: TrainingOption) -> None:
    if option.default is False:
        parser.add_argument(option.flag, action="store_true", default=None, help=option.help)
        return
    text = f"{option.help} (default {option.default})"
    if option.choices:
        parser.add_argument(option.flag, choices=option.choices, help=text)
    else:
        parser.add_argument(option.flag, metavar="N", type=_up_to(option.most), help=text)


def _up_to(most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = count(text)
        if value > most:
            raise argparse.ArgumentTypeError(f"expected at most {most}, got {value}")
        return value

    return number


def add_init_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard init`."""
    parser.epilog = """\
example:
  laggard init --prometheus http://prometheus:9090 -o aggregator.toml
"""
    add = parser.add_argument
    add("--prometheus", metavar="URL", required=True, help="the server whose counters are to be judged")
    add(
        "-o",
        "--output",
        type=Path,
        default=Path("aggregator.toml"),
        metavar="FILE",
        help="default %(default)s; an existing file is left alone",
    )
    add("--directory", type=Path, metavar="DIR", help="of state and archive (default: laggard beside FILE)")
    _add_server_access(parser.add_argument)


def _add_prometheus_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options for a server in place of INPUT."""
    server = parser.add_argument_group("a Prometheus server, in place of INPUT")
    add = server.add_argument
    add("--prometheus", metavar="URL", help="judge the counters that this server scraped")
    add("--map", metavar="NAME|FILE", help="which series are compared (default: each shipped map that fits)")
    add("--from", dest="since", metavar="TIME", help="-12h, -7d or a time as 2026-01-31T10:00 (default -1d)")
    add("--to", dest="until", metavar="TIME", help="default now")
    _add_server_access(add)


def _add_server_access(add: Callable[..., Any]) -> None:
    add("--token-file", type=Path, metavar="FILE", help="a bearer token for the server")
    add("--ca-file", type=Path, metavar="FILE", help="who signed the server's certificate")


def _add_input_options(parser: argparse.ArgumentParser, number: str) -> None:
    """Declares INPUT, `number` of them as `nargs`, and the CSV options."""
    parser.add_argument(
        "inputs",
        metavar="INPUT",
        nargs=number,
        type=Path,
        help="a Laggard archive folder, or files: sysstat activity, PCP CSV, other CSV (also .gz, .xz, .zst)",
    )
    csv = parser.add_argument_group("columns of a CSV")
    add = csv.add_argument
    add("--time-column", metavar="NAME", default=_COLUMNS.time, help="default %(default)s")
    add("--component-column", metavar="NAME", default=_COLUMNS.component, help="default %(default)s")
    add(
        "--metric",
        metavar="NAME",
        action="append",
        help="larger is worse; may be given more than once (default latency)",
    )
    add("--load", metavar="NAME", help="what the component had to do, such as throughput")
    add(
        "--group-by",
        metavar="file|NAME",
        help="peers are the components of one file, or with one value of a column",
    )
    add("--timezone", metavar="ZONE", help="zone of times that name none, such as Europe/Berlin")


def add_local(parser: argparse.ArgumentParser) -> None:
    """Declares `--local`."""
    parser.add_argument(
        "--local", action="store_true", help="print times in this machine's zone (default: UTC)"
    )


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[Path | None]) -> None:
    """Raises ConfigError for an output, by its option, that is another one, or is or lies in an input."""
    taken = [path for path in inputs if path is not None]
    for option, output in outputs.items():
        if output is None:
            continue
        for path in taken:
            if _is_within(output, path):
                raise ConfigError("", [f"{option}: {output} is also an input or output of this run"])
        taken.append(output)


def _is_within(output: Path, path: Path) -> bool:
    """True when `output` is the file `path`, also by another name, or would lie in a folder within `path`."""
    try:
        is_same = output.exists() and path.exists() and output.samefile(path)
        return (
            is_same
            or output.absolute() == path.absolute()
            or path.resolve() in output.resolve().parent.parents
        )
    except (OSError, RuntimeError):  # unreadable, or links in a circle
        return False


def csv_columns(args: argparse.Namespace) -> CsvColumns:
    """CSV columns named by the options. Raises ConfigError for an unknown zone."""
    return CsvColumns(
        time=args.time_column,
        component=args.component_column,
        metrics=tuple(dict.fromkeys(args.metric or _COLUMNS.metrics)),
        load=args.load,
        group_by=args.group_by,
        zone=find_zone(args.timezone),
    )


def _add_window_options(parser: argparse.ArgumentParser, detectors: Sequence[str]) -> None:
    """Declares detector, interval and windows."""
    judging = parser.add_argument_group("judging")
    add = judging.add_argument
    add("--detector", choices=detectors, help=f"default {detectors[0]}")
    add("--interval", metavar="SECONDS", type=positive, help="detection interval (default 15)")
    add("--window", metavar="N", type=count, help="intervals a window (default 60)")
    add("--shift", metavar="N", type=count, help="intervals from window to window (default 30)")


def positive(text: str) -> float:
    """Parses a positive number."""
    value = _number(text)
    if not (math.isfinite(value) and value >= 0.001):
        raise argparse.ArgumentTypeError(f"expected a number of 0.001 or more, got {text}")
    return value


def count(text: str) -> int:
    """Parses a number of intervals or windows."""
    value = _number(text)
    if not (value.is_integer() and 1 <= value <= 100_000):
        raise argparse.ArgumentTypeError(f"expected an integer of 1-100000, got {text}")
    return int(value)


def whole_number(text: str) -> int:
    """Parses a whole number of 1 or more."""
    if not (text.isdecimal() and 1 <= int(text) <= 1 << 30):
        raise argparse.ArgumentTypeError(f"expected a whole number of 1 or more, got {text}")
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None


def settings_given(args: argparse.Namespace) -> dict[str, object]:
    """The fields of DetectSettings set by options; others keep their default or recorded value.

    Raises ConfigError when windows would leave gaps.
    """
    named = {
        "detector": args.detector,
        "interval_seconds": args.interval,
        "window_samples": args.window,
        "shift_samples": args.shift,
        "confirm": getattr(args, "confirm", None),
        "false_alarms_per_week": getattr(args, "false_alarms", None),
    }
    given = {name: value for name, value in named.items() if value is not None}
    window = args.window or _SETTINGS.window_samples
    shift = args.shift or _SETTINGS.shift_samples
    if shift > window:
        raise ConfigError("", [f"--shift: expected at most the window of {window} intervals, got {shift}"])
    return given
