"""Registry of the detectors: a folder of this package each, whose class registers itself when it is imported.

The folder `<name>/` has `detector.py` with a class as `DetectorClass` says. Nothing lists the folders.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, Protocol, TypeVar

from laggard_aggregator import detect
from laggard_aggregator.detect.interface import Detector, FloatArray, VectorDetector, Window
from laggard_aggregator.detect.settings import ByMetric, DetectSettings

Compares = Literal["metrics", "functions"]
"""Components by their metrics (`Detector`), or nodes by their functions (`VectorDetector`)."""

DEFAULT_TRAINED = "cdf"
"""Detector that `laggard train` trains by default."""


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


@dataclass(frozen=True, slots=True)
class Trained:
    """Results of training, by group. `tables`: more of them than thresholds, by the name of the table."""

    thresholds: Mapping[str, ByMetric]
    tables: Mapping[str, Mapping[str, ByMetric]] = field(default_factory=dict)


FaultFree = Callable[[], Iterable[tuple[Window, DetectSettings]]]
"""Starts another pass over the fault-free windows, with the settings of their groups."""


@dataclass(frozen=True, slots=True)
class Training:
    """Training of a detector. `learn` gets the windows and the options by name.

    `tables`: names of tables in a thresholds file besides `thresholds`, of numbers above 0.
    """

    learn: Callable[[FaultFree, Mapping[str, Any]], Trained]
    options: tuple[TrainingOption, ...] = ()
    tables: tuple[str, ...] = ()

    @property
    def kept(self) -> tuple[TrainingOption, ...]:
        """The options that a thresholds file has."""
        return tuple(option for option in self.options if option.kept)


class DetectorClass(Protocol):
    """Declarations of a detector's class.

    `name`: of its folder, and in the configuration. `training`: None for a detector that has no thresholds;
    `needs_thresholds`: it judges nothing without them. `distributions`: the samples (W, C) whose
    distributions it compares, NaN for absent components, from a window (C, H + W) and H; None where it
    compares none.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def version(self) -> int: ...  # noqa: D102

    @property
    def compares(self) -> Compares: ...  # noqa: D102

    @property
    def training(self) -> Training | None: ...  # noqa: D102

    @property
    def needs_thresholds(self) -> bool: ...  # noqa: D102

    @property
    def distributions(self) -> Callable[[FloatArray, int], FloatArray] | None: ...  # noqa: D102

    def __call__(self, settings: DetectSettings, metric: str, /) -> Any:
        """A detector for one group and metric: as `compares` says."""
        ...


C = TypeVar("C", bound=DetectorClass)

registered: dict[str, DetectorClass] = {}


def register(detector: C) -> C:
    """Class decorator: makes the detector known under its name."""
    registered[detector.name] = detector
    return detector


@cache
def _folders() -> tuple[str, ...]:
    return tuple(sorted(folder.name for folder in pkgutil.iter_modules(detect.__path__) if folder.ispkg))


def names(compares: Compares | None = None) -> tuple[str, ...]:
    """Names of the detectors, or of those that compare the like: the default one, then by the alphabet."""
    default = DetectSettings().detector
    every = sorted(_folders(), key=lambda name: (name != default, name))
    return tuple(name for name in every if compares in (None, find(name).compares))


def trainable(compares: Compares | None = None) -> tuple[str, ...]:
    """Names of the detectors that can be trained."""
    return tuple(name for name in names(compares) if find(name).training is not None)


def find(name: str) -> DetectorClass:
    """The class of a detector. Raises KeyError for an unknown name."""
    if name not in registered and name in _folders():
        importlib.import_module(f"{detect.__name__}.{name}.detector")
    return registered[name]


def make_detector(settings: DetectSettings, metric: str) -> Detector | VectorDetector:
    """A new detector for one group and metric. Raises KeyError for an unknown name."""
    made: Detector | VectorDetector = find(settings.detector)(settings, metric)
    return made
