"""Threshold in spreads for the operator's budget of false alarms a week over the whole site."""

from functools import lru_cache

from scipy import stats

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.detect.settings import DetectSettings

WEEK_SECONDS = 7 * 86400.0
QUANTILE_SHARE = 0.9
"""Share of the normal law's quantile that one window must reach: an alarm needs several windows to agree."""
LENGTH_EXPONENT = 0.1
"""Long averages hardly change between windows, so confirmation helps them less: their quantile grows so."""


def chance_per_window(settings: DetectSettings, tests_at_once: int = 0) -> float:
    """The chance of a false alarm that one window of one component and metric may have.

    `tests_at_once`: how many series share the budget now, 0 for the number in `settings`.
    """
    windows = WEEK_SECONDS / settings.shift_seconds * max(tests_at_once or settings.tests_at_once, 1)
    return min(settings.false_alarms_per_week / windows, 0.05)


@lru_cache(maxsize=4096)
def normal_quantile(chance: float, freedom: int) -> float:
    """How many spreads a healthy value exceeds with `chance`, the spread resting on `freedom` values.

    The excess of Student's t over the normal law is taken at the square root of `chance`: by the time that an
    alarm is confirmed the spread is known better than when its first window was flagged.
    """
    lax = chance**0.5
    return float(stats.norm.isf(chance) * stats.t.isf(lax, freedom) / stats.norm.isf(lax))


def critical(
    chance: float, freedom: float, length: FloatArray, confirmed: float = QUANTILE_SHARE
) -> FloatArray:
    """The threshold in spreads for averages over `length` windows; same shape as `length`.

    `confirmed`: the share of the quantile that one window must reach.
    """
    level = confirmed * normal_quantile(chance, max(int(freedom), 3))
    threshold: FloatArray = level * length**LENGTH_EXPONENT
    return threshold
