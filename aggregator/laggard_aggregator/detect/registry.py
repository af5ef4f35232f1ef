"""Registry of the detectors: a folder of this package each, whose class registers itself when it is imported.

The folder `<name>/` has `detector.py` with a class that derives from `Detector`, and in `__init__.py` the
options of its training (`settings`); so has a package with an entry point of the group
`laggard.detectors`. Nothing lists the folders.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Any, ClassVar, Generic, Literal, TypeVar

from laggard_aggregator.detect.interface import FloatArray, FunctionWindow, GroupWindow, Verdicts, Window
from laggard_aggregator.detect.settings import (
    ByMetric,
    DetectSettings,
    TrainingOption,
    detector_names,
    detector_packages,
    peer_detector_names,
)
from laggard_common.extensions import load

Compares = Literal["metrics", "functions"]
"""Components by their metrics (`GroupWindow`), or nodes by their functions (`FunctionWindow`)."""
W = TypeVar("W", GroupWindow, FunctionWindow)


@dataclass(frozen=True, slots=True)
class Trained:
    """Results of training, by group. `tables`: more of them than thresholds, by the name of the table."""

    thresholds: Mapping[str, ByMetric]
    tables: Mapping[str, Mapping[str, ByMetric]] = field(default_factory=dict)


FaultFree = Callable[[], Iterable[Window]]
"""Starts another pass over the fault-free windows."""


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


class Detector(ABC, Generic[W]):
    """Judges the windows of one group and one metric, in order of time.

    `name`: of its folder, and in the configuration; `version` changes whenever verdicts may; `restores_from`:
    the oldest version whose state it continues from, 0 for its own alone. `training`: None
    for a detector that has no thresholds; `needs_thresholds`: it judges nothing without them. `by_itself`:
    it needs no peers, so that its groups are beside those of peers and take no share of their budget; it has
    a section of the configuration of its own. `reference`: the name of `Verdicts.reference`.
    `distributions`: the samples (W, C) whose distributions it compares, NaN for absent components, from a
    window (C, H + W) and H; None where it compares none. `history_samples` is H.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    restores_from: ClassVar[int] = 0
    compares: ClassVar[Compares] = "metrics"
    training: ClassVar[Training | None] = None
    needs_thresholds: ClassVar[bool] = False
    by_itself: ClassVar[bool] = False
    reference: ClassVar[str] = "peers"
    distributions: ClassVar[Callable[[FloatArray, int], FloatArray] | None] = None
    history_samples: int = 0

    def __init__(self, settings: DetectSettings, metric: str) -> None:
        """Raises ValueError on thresholds that are negative or not finite."""
        self._settings = settings
        self._metric = metric
        self._thresholds = dict(settings.thresholds.get(metric, {}))
        if not all(0 <= threshold < inf for threshold in self._thresholds.values()):
            raise ValueError(f"{self.name} thresholds: expected finite numbers of 0 or more")

    @abstractmethod
    def observe(self, window: W) -> Verdicts:
        """The verdicts on `window`; advances the detector's own state."""

    @classmethod
    def restores(cls, version: Any) -> bool:
        """Whether it continues from a state of that version."""
        return version == cls.version or (
            type(version) is int and 0 < cls.restores_from <= version < cls.version
        )

    def forget(self, components: Collection[str]) -> None:
        """Frees the state of `components`, which are gone; they start without state if they return."""

    def state(self) -> dict[str, Any]:
        """The state as plain data (dict, list, str, int, float), from which `restore` continues exactly."""
        return {"name": self.name, "version": self.version}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved state of the same name, and a version that it reads. Raises ValueError."""
        if state.get("name") != self.name or not self.restores(state.get("version")):
            raise ValueError(f"not a state of {self.name} {self.version}")


AnyDetector = Detector[Any]
D = TypeVar("D", bound=type[AnyDetector])

registered: dict[str, type[AnyDetector]] = {}


def register(detector: D) -> D:
    """Class decorator: makes the detector known under its name."""
    registered[detector.name] = detector
    find.cache_clear()
    return detector


def names(compares: Compares | None = None) -> tuple[str, ...]:
    """Names of the detectors of peers, or of those that compare the like; the default one comes first."""
    return tuple(name for name in peer_detector_names() if compares in (None, find(name).compares))


def trainable(compares: Compares | None = None) -> tuple[str, ...]:
    """Names of the detectors that can be trained."""
    return tuple(name for name in names(compares) if find(name).training is not None)


@cache
def find(name: str) -> type[AnyDetector]:
    """The class of a detector. Raises KeyError for an unknown name."""
    if name not in registered and name in detector_names():
        load(detector_packages()[name], "detector")
    return registered[name]


def training_of(name: str) -> Training:
    """The training of a trainable detector."""
    training = find(name).training
    assert training is not None
    return training


def make_detector(settings: DetectSettings, metric: str) -> AnyDetector:
    """A new detector for one group and metric. Raises KeyError for an unknown name."""
    return find(settings.detector)(settings, metric)
