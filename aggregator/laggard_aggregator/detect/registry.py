"""Which detector a name stands for."""

from collections.abc import Callable

from laggard_aggregator.detect.cdf.detector import CdfDetector
from laggard_aggregator.detect.interface import Detector, VectorDetector
from laggard_aggregator.detect.laggard.detector import LaggardDetector
from laggard_aggregator.detect.manhattan.detector import ManhattanDetector
from laggard_aggregator.detect.settings import DetectSettings

_MAKERS: dict[str, Callable[[DetectSettings, str], Detector]] = {
    "cdf": CdfDetector,
    "laggard": LaggardDetector,
}
_OF_FUNCTIONS: dict[str, Callable[[DetectSettings, str], VectorDetector]] = {"manhattan": ManhattanDetector}
FUNCTION_DETECTORS = tuple(_OF_FUNCTIONS)
"""The detectors that judge nodes by their functions, and nothing else."""
VERSIONS = {known.name: known.version for known in (CdfDetector, LaggardDetector, ManhattanDetector)}


def judges(detector: str, *, functions: bool) -> bool:
    """Whether a detector is for sources whose components are `functions`, or for the others."""
    return (detector in FUNCTION_DETECTORS) == functions


def make_detector(settings: DetectSettings, metric: str) -> Detector:
    """A new detector for one group and metric. Raises KeyError for a name that it does not know."""
    return _MAKERS[settings.detector](settings, metric)


def make_vector_detector(settings: DetectSettings, metric: str) -> VectorDetector:
    """As `make_detector`, of one of FUNCTION_DETECTORS."""
    return _OF_FUNCTIONS[settings.detector](settings, metric)
