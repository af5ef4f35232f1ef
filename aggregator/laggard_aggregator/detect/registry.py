"""Which detector a name stands for."""

from collections.abc import Callable

from laggard_aggregator.detect.cdf import CdfDetector
from laggard_aggregator.detect.laggard import LaggardDetector
from laggard_aggregator.detect.seam import Detector
from laggard_aggregator.detect.settings import DetectSettings

_MAKERS: dict[str, Callable[[DetectSettings, str], Detector]] = {
    "cdf": CdfDetector,
    "laggard": LaggardDetector,
}


def make_detector(settings: DetectSettings, metric: str) -> Detector:
    """A new detector for one group and metric. Raises KeyError for a name that is not in DETECTORS."""
    return _MAKERS[settings.detector](settings, metric)
