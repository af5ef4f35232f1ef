"""Settings of detection: the `[detect]` section, which every `[[group]]` may override; options of training.

The package of a detector that can be trained has `TRAINING_OPTIONS`, which may be empty.
"""

import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from typing import Any

from laggard_aggregator import detect
from laggard_common.extensions import extensions, load

EXTENSIONS = "laggard.detectors"

DEFAULT_TRAINED = "cdf"
"""Detector that `laggard train` trains by default."""

LOADS = ("operations", "throughput", "request_bytes", "read_share")
"""Names in `GroupWindow.load` of the demand on a component."""
ByMetric = Mapping[str, Mapping[str, float]]
"""Numbers of one group: by metric, then by component or function."""

_RECORDED: Mapping[str, Any] = {"bin_limit": 1000, "bin_limit_mode": "widen"}
"""Options that records have always had, with the values of groups without them."""


@dataclass(frozen=True, slots=True)
class DetectSettings:
    """Judging of one group. The defaults are the Intrepid paper's (4.2).

    `false_alarms_per_week` is for the whole site; `tests_at_once` is how many component-metric series share
    it. `thresholds[metric][component]` are a trained detector's; they hold only for `options`, the values
    that the detector was trained with (`registry.Training`). `shadow`: the settings of a second detector that
    judges the same windows for comparison and raises no alarm; it has the same interval, windows and confirm.
    `rotating`: members are slow one after the other by maintenance, which raises no alarm while it moves on.
    """

    detector: str = "laggard"
    interval_seconds: float = 15.0
    window_samples: int = 60
    shift_samples: int = 30
    confirm: int = 3
    false_alarms_per_week: float = 1.0
    tests_at_once: int = 1
    thresholds: ByMetric = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    shadow: "DetectSettings | None" = None
    rotating: bool = False

    @property
    def window_seconds(self) -> float:
        """Length of a window."""
        return self.window_samples * self.interval_seconds

    @property
    def shift_seconds(self) -> float:
        """Time from one window's end to the next one's."""
        return self.shift_samples * self.interval_seconds

    def record(self) -> dict[str, Any]:
        """The settings as plain data, options beside the others: for archives, and digests in snapshots."""
        plain = asdict(replace(self, shadow=None))
        thresholds, options = plain.pop("thresholds"), plain.pop("options")
        del plain["shadow"]
        if not self.rotating:
            del plain["rotating"]
        shadow = {} if self.shadow is None else {"shadow": self.shadow.record()}
        return {**plain, **_RECORDED, "thresholds": thresholds, "functions": {}, **options, **shadow}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> "DetectSettings":
        """The settings that `record` was made of."""
        own = {field.name for field in fields(cls)}
        shadow = cls.of_record(record["shadow"]) if "shadow" in record else None
        absent = {**_RECORDED, "functions": {}}
        options = {
            name: value
            for name, value in record.items()
            if name not in own and not (name in absent and absent[name] == value)
        }
        plain = {name: value for name, value in record.items() if name in own - {"shadow"}}
        return cls(**plain, options=options, shadow=shadow)


OF_FUNCTIONS = DetectSettings(
    detector="manhattan", interval_seconds=10.0, window_samples=6, shift_samples=3, confirm=3
)
"""Default for groups that are compared by functions: windows of 60 s, moved by 30 s (HotDep)."""


@dataclass(frozen=True, slots=True)
class TrainingOption:
    """An option of `laggard train`: `--bin-limit` for `bin_limit`.

    `default`: False for a flag, a number from 1 to `most`, or one of `choices`. `kept`: thresholds hold only
    together with the value, which is kept with them and handed to the detector in `DetectSettings.options`.
    """

    name: str
    help: str
    default: int | str | bool
    most: int = 100_000
    choices: tuple[str, ...] = ()
    kept: bool = True

    @property
    def flag(self) -> str:
        """The option as it is typed."""
        return f"--{self.name.replace('_', '-')}"

    def problem(self, value: object) -> str | None:
        """The error in a value of a thresholds file; None when there is none."""
        if self.choices:
            good, expected = value in self.choices, " or ".join(self.choices)
            return None if good else f"expected {expected}, got {value!r}"
        good = isinstance(value, int) and 1 <= value <= self.most
        return None if good else f"expected 1-{self.most}, got {value}"


@cache
def detector_names() -> tuple[str, ...]:
    """Names of the detectors: the default one, then by the alphabet."""
    default = DetectSettings().detector
    return tuple(sorted(detector_packages(), key=lambda name: (name != default, name)))


def detector_packages() -> Mapping[str, str]:
    """The package of each detector by name; Laggard's own folders go before the packages of others."""
    folders = (folder.name for folder in pkgutil.iter_modules(detect.__path__) if folder.ispkg)
    return {**extensions(EXTENSIONS), **{name: f"{detect.__name__}.{name}" for name in folders}}


def peer_detector_names() -> tuple[str, ...]:
    """Names of the detectors that compare peers, without importing any: all but those `BY_ITSELF`."""
    packages = {name: load(package, "") for name, package in detector_packages().items()}
    return tuple(name for name in detector_names() if not getattr(packages[name], "BY_ITSELF", False))


def training_options() -> dict[str, Sequence[TrainingOption]]:
    """The options of the detectors that can be trained, DEFAULT_TRAINED first."""
    packages = {name: load(package, "") for name, package in detector_packages().items()}
    return {
        name: packages[name].TRAINING_OPTIONS
        for name in sorted(packages, key=lambda name: (name != DEFAULT_TRAINED, name))
        if hasattr(packages[name], "TRAINING_OPTIONS")
    }
