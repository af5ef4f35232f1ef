"""From the operator's one knob, false alarms a week for the whole site, to a threshold in standard units."""

from functools import lru_cache

from scipy import stats

from laggard_aggregator.detect.settings import DetectSettings

SECONDS_A_WEEK = 7 * 86400.0


def chance_per_window(settings: DetectSettings) -> float:
    """The chance of a false flag that one window of one component and metric may have."""
    windows = SECONDS_A_WEEK / settings.shift_seconds * max(settings.tests_at_once, 1)
    return min(settings.false_alarms_per_week / windows, 0.05)


@lru_cache(maxsize=4096)
def critical_value(chance: float, freedom: int) -> float:
    """How many spreads a healthy value exceeds with `chance`, the spread resting on `freedom` values.

    Student's t, not the normal law: a young group knows its own spread badly and must be careful.
    """
    return float(stats.t.isf(chance, freedom))
