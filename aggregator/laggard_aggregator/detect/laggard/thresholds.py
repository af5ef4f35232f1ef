"""Thresholds from the budget of false alarms, in spreads."""

from functools import lru_cache

import numpy as np
from scipy import special

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.detect.laggard.evidence import KINDS, LENGTHS, SCALE_WINDOWS
from laggard_aggregator.detect.settings import DetectSettings

WEEK_SECONDS = 7 * 86400.0
CONFIRMED_SHARES = np.array(
    [
        [[1.07, 1.08, 1.06, 1.05, 1.03, 1.04], [1.07, 1.06, 1.07, 1.10, 1.06, 1.04]],
        [[0.89, 0.94, 0.97, 1.00, 1.02, 1.02], [0.73, 0.80, 0.93, 0.99, 0.98, 1.01]],
        [[0.74, 0.83, 0.90, 0.96, 0.99, 1.02], [0.56, 0.67, 0.78, 0.91, 0.96, 1.00]],
        [[0.66, 0.75, 0.87, 0.92, 0.98, 1.00], [0.50, 0.58, 0.73, 0.83, 0.90, 0.95]],
        [[0.61, 0.72, 0.82, 0.90, 0.96, 0.99], [0.43, 0.52, 0.67, 0.81, 0.87, 0.93]],
    ]
)
"""Share of the normal quantile that k of 2k - 1 windows must exceed; (k from 1, persistence, SCALE_WINDOWS).

First of noise whose averages shrink as n ** -1/4 (see `standard_error`), then of independent noise; by
`python -m bench.accuracy.confirmed_shares`. Where averages do not shrink at all it is 1."""
MIN_LONE_SHARE = 0.85
"""Least share for latencies: a lone anomalous window raises no alarm, but it is shown."""
TAILS = np.array([1.25, 1.1])
"""Factors of the thresholds of each kind over those of normal noise: healthy drives have slow episodes."""
SERVICE_TAIL = 0.9
"""The same of service times, of both kinds: their evidence is at most the latency's and a spread."""
INDEPENDENCE_SCALE = 3
"""Index of the average that tells how persistent noise is."""


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
    # norm.isf and t.isf of scipy.stats to the bit; importing that takes 40 MB and half a second.
    return float(-special.ndtri(chance) * special.stdtrit(freedom, lax) / special.ndtri(lax))


def critical(
    chance: float,
    freedom: FloatArray,
    length: FloatArray,
    unit: FloatArray,
    confirm: int,
    *,
    of_service: bool,
) -> FloatArray:
    """Thresholds of averages over `length` windows (R, C), in spreads; (R, C). Rows are those of ROW_WINDOWS.

    `freedom` (R,): values that each spread rests on; `unit` (R,): the spreads in single-window units, which
    fall with length as far as windows are independent. `confirm`: k of 2k - 1 windows raise an alarm; beyond
    CONFIRMED_SHARES as its last k. `of_service`: of service times, else of latencies.
    """
    tails, lone = (np.full(KINDS, SERVICE_TAIL), 0.0) if of_service else (TAILS, MIN_LONE_SHARE)
    persistent, independent = CONFIRMED_SHARES[min(confirm, len(CONFIRMED_SHARES)) - 1]
    quantiles = np.array([normal_quantile(chance, max(int(values), 3)) for values in freedom])
    by_kind = (array.reshape(KINDS, LENGTHS, *array.shape[1:]) for array in (length, unit, quantiles))
    thresholds = []
    for lengths, units, quantile, tail in zip(*by_kind, tails, strict=True):
        fall = np.log(units[0] / units[INDEPENDENCE_SCALE]) / np.log(SCALE_WINDOWS[INDEPENDENCE_SCALE])
        part = np.clip(fall / 0.25, -1.0, 1.0)
        other = independent if part > 0.0 else np.ones(LENGTHS)  # who differs for good exceeds all k or none
        shares = np.maximum((1.0 - abs(part)) * persistent + abs(part) * other, lone)
        share = np.interp(lengths, SCALE_WINDOWS, shares)
        thresholds.append(tail * quantile[:, None] * share)
    return np.concatenate(thresholds)
