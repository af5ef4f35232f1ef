"""`laggard train`: thresholds for the detectors that need them, from data without faults."""

import argparse
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any

from laggard_aggregator.alarms.alarms import Alarm
from laggard_aggregator.cli.options import check_outputs, csv_columns, settings_given
from laggard_aggregator.detect import registry
from laggard_aggregator.detect.interface import GroupWindow, Window
from laggard_aggregator.detect.settings import DEFAULT_TRAINED, OF_FUNCTIONS, DetectSettings
from laggard_aggregator.detect.trained_thresholds import Thresholds
from laggard_aggregator.offline.run import open_run, open_windows
from laggard_aggregator.offline.training import Curves, outstanding
from laggard_aggregator.settings import thresholds_file
from laggard_aggregator.status import formatting
from laggard_common.errors import ConfigError, InputError, MissingPackageError
from laggard_common.visible import visible


def run(args: argparse.Namespace) -> int:
    """Trains, and writes thresholds and picture. Raises LaggardError."""
    if args.plot is not None and find_spec("matplotlib") is None:
        raise MissingPackageError("matplotlib (--plot)", "aggregator")
    check_outputs({"-o": args.output, "--plot": args.plot}, args.inputs)
    if not args.output.parent.is_dir():
        raise InputError(str(args.output), "cannot be written: no such directory")
    name = args.detector or DEFAULT_TRAINED
    options = _options(args, name)
    data = _Data(args, name)
    trained = registry.training_of(name).learn(data.windows, options)
    series = sum(len(known) for metrics in trained.thresholds.values() for known in metrics.values())
    if not series:
        raise InputError(str(args.inputs[0]), "no window has enough samples of enough peers to learn from")
    kept = {option.name: options[option.name] for option in registry.training_of(name).kept}
    thresholds = Thresholds(
        detector=name,
        version=registry.find(name).version,
        trained=datetime.now(UTC).isoformat(timespec="seconds"),
        sources=[path.name or str(path) for path in args.inputs],
        interval_seconds=data.settings[0].interval_seconds,
        window_samples=data.settings[0].window_samples,
        groups=trained.thresholds,
        options=kept,
        tables=trained.tables,
    )
    standing_out = data.standing_out()
    thresholds_file.save(args.output, thresholds)
    for outlier in standing_out:
        severity = f", at times {outlier.worst_severity:.2f} x its peers" if outlier.worst_severity else ""
        said = f"{outlier.group} {outlier.component} stands out in {outlier.metric}{severity}"
        print(visible(f"laggard train: {said}: does this data contain a fault?"), file=sys.stderr)
    print(visible(f"{formatting.counted(series, 'threshold')} written to {args.output}"))
    if args.plot is not None:
        from laggard_aggregator.offline.plot import save_plot

        save_plot(args.plot, data.curves, standing_out)
    return 0


def _options(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """The options of the detector's training. Raises ConfigError for those of another's."""
    for other in registry.trainable():
        for option in registry.training_of(other).options:
            if option not in registry.training_of(name).options and getattr(args, option.name) is not None:
                raise ConfigError("", [f"{option.flag} goes with --detector {other}"])
    if args.plot is not None and registry.find(name).compares != "metrics":
        raise ConfigError("", [f"--plot goes with --detector {' or '.join(registry.trainable('metrics'))}"])
    given = {option: getattr(args, option.name) for option in registry.training_of(name).options}
    return {o.name: o.default if value is None else value for o, value in given.items()}


class _Data:
    """The data of the training. `settings`: those of its groups; `curves`: means of the metrics."""

    def __init__(self, args: argparse.Namespace, name: str) -> None:
        self._inputs = args.inputs
        self._columns, self._given = csv_columns(args), settings_given(args)
        self._name = name
        self._compares = registry.find(name).compares
        self.settings: list[DetectSettings] = []
        self.curves = Curves()

    def windows(self) -> Iterator[Window]:
        """A pass over the windows. Raises InputError for groups whose windows differ."""
        is_first = not self.settings
        for window, used in open_windows(
            self._inputs, self._columns, {**self._given, "detector": self._name}
        ):
            if isinstance(window, GroupWindow) != (self._compares == "metrics"):
                continue
            if used not in self.settings:
                self.settings.append(used)
                if len({(own.interval_seconds, own.window_samples) for own in self.settings}) > 1:
                    problem = "its groups have different windows: train them apart"
                    raise InputError(str(self._inputs[0]), problem)
            if is_first and isinstance(window, GroupWindow):
                self.curves.add(window)
            yield window

    def standing_out(self) -> list[Alarm]:
        """Components that the default detector finds anomalous in the data."""
        default = DetectSettings() if self._compares == "metrics" else OF_FUNCTIONS
        given = {**self._given, "detector": default.detector}
        return outstanding(open_run(self._inputs, self._columns, given).judgements)
