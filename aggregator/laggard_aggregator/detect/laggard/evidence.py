"""Accumulated evidence: thresholds from the false-alarm budget, spread, and averaged log ratios."""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from laggard_aggregator.detect.interface import BoolArray, FloatArray
from laggard_aggregator.detect.peers import row_median, shortest_half, trimmed_mean
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
`python -m bench.accuracy.confirmed_shares`."""
MIN_LONE_SHARE = 0.85
"""Least share for latencies: a lone anomalous window raises no alarm, but it is shown."""
KINDS = 2
"""Kinds of evidence: the trimmed mean, which counts slowness by the time that it costs, and the mean of the
faster half of the intervals, which varies less, but misses slowness in less than half of the time."""
TAILS = np.array([1.25, 1.1])
"""By how much thresholds of each kind exceed those of normal noise: healthy drives have slow episodes."""
SERVICE_TAILS = np.ones(KINDS)
"""The same of service times: chance in them is the device's own."""
MIN_SPREAD = 1e-6
BATCHES = 4
CROSS_TO_OWN_RATIO = 1.7
"""Spread across healthy members over the standard error of their own course over a window.

Members also wander from window to window and differ for good, so it is above 1: 1.6-2.1 on real drives."""
MIN_CROSS_TO_OWN_RATIO, MAX_CROSS_TO_OWN_RATIO = 1.2, 2.0
RATIO_PRIOR_VALUES = 12.0
"""Weight of that ratio, in independent values, until the group has shown its own."""
LENGTH_PRIOR_VALUES = 8.0
"""Weight of the next shorter average's spread by the law of `standard_error`, in independent values."""
MAX_MEAN_SQUARE_RATIO = 2.0
"""Upper limit of a component's mean square over the typical one: a straggler not yet known is no noise."""
SCALE_WINDOWS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
"""Lengths of the averages of each kind of evidence, in windows."""
LENGTHS = SCALE_WINDOWS.size
ROW_WINDOWS = np.tile(SCALE_WINDOWS, KINDS)
"""The same by row of `GroupEvidence.average`: one kind after the other."""
INDEPENDENCE_SCALE = 3
"""Index of the average that tells how persistent noise is."""
SEVERITY_SCALE = 2
"""Index of the average that gives the severity."""
RECENT_SCALE = 1
"""Index of the average that gives the present state: its two windows outweigh the past eight times."""
IDLE_HALF_LIFE_WINDOWS = 32.0
"""Windows without I/O after which half of the evidence is forgotten."""
SPREAD_MEMORY_WINDOWS = 96.0
"""Windows over which a component's mean square is averaged."""
NOISE_MEMORY_WINDOWS = 32.0
"""Windows over which a component's own noise is averaged."""
MIN_LENGTH_WINDOWS = 0.01
STEADY_WINDOWS = 4.0
"""Weight of the windows before in the average of how steady a component's queue is."""
YOUNG_WINDOWS, MAX_YOUNG = 1.5, 1.06
"""Weight of not knowing a group's spread, in windows, and the most that it widens thresholds."""
MIN_ONSETS, MAX_ONSETS = 3.4, 5.0
"""How often one became slow, lately, from which it is slow in between too, and the most that is counted."""
ONSET_DRIFTS = np.array([0.13, 0.2, 0.35])
"""Log ratios a window that are subtracted from sums of evidence: a harmless difference, which may last for
good, and half of a lasting factor of 1.5 and 2."""
MAX_ONSET_WINDOWS = 96.0
"""A sum that rises for more windows with evidence is of a small difference that is there for good."""
MAX_SUM_WINDOWS = 32.0
"""Windows like the peers' after which a sum is 0, however long it has risen: the longest average's length."""
MAX_GAP_WINDOWS = 8.0
"""Windows like the peers' that a gap counts as at most: chance sums end in it, those of slowness do not."""
_ARRAYS = (
    *("sum", "sum_began", "sum_windows", "sum_until"),
    *("average", "moment", "slowness", "windows", "seen"),
    *("noise", "heard", "score", "onsets", "was_slow", "steady"),
)


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
    tails, lone = (SERVICE_TAILS, 0.0) if of_service else (TAILS, MIN_LONE_SHARE)
    persistent, independent = CONFIRMED_SHARES[min(confirm, len(CONFIRMED_SHARES)) - 1]
    quantiles = np.array([normal_quantile(chance, max(int(values), 3)) for values in freedom])
    by_kind = (array.reshape(KINDS, LENGTHS, *array.shape[1:]) for array in (length, unit, quantiles))
    thresholds = []
    for lengths, units, quantile, tail in zip(*by_kind, tails, strict=True):
        fall = np.log(units[0] / units[INDEPENDENCE_SCALE]) / np.log(SCALE_WINDOWS[INDEPENDENCE_SCALE])
        part = np.clip(fall / 0.25, 0.0, 1.0)
        shares = np.maximum((1.0 - part) * persistent + part * independent, lone)
        share = np.interp(lengths, SCALE_WINDOWS, shares)
        thresholds.append(tail * quantile[:, None] * share)
    return np.concatenate(thresholds)


def standard_error(length: FloatArray) -> FloatArray:
    """The spread of a mean over `length` windows, in units of one window's: length ** -1/4.

    Healthy components wander: an independent window-to-window noise would give length ** -1/2, a constant
    difference 1. Fault-free drives show the fourth root (docs/detection.md); each group corrects it.
    Parts of a window (`length` below 1) do hold independent noise.
    """
    root: FloatArray = np.where(length < 1.0, length**-0.5, length**-0.25)
    return root


def cross_spread(excess: FloatArray) -> float:
    """A standard deviation of `excess` (C,) that just under half of it cannot inflate; NaN below two."""
    finite = excess[np.isfinite(excess)]
    if finite.size < 2:
        return np.nan
    _, length = shortest_half(finite)
    # The expected length of the shortest half of standard normal values, roughly.
    return length / (1.349 * (1.0 - float(np.sqrt(1.0 / (finite.size + 1)))) + 0.3)


def batch_variance(deviations: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """The squared standard error of each row's middle, from its own course over time; (C,).

    `deviations` (C, T): log ratios by tick, NaN = missing; of their `trimmed_mean` by `weights` (C, T). By
    batch means (four a row), so that noise that is correlated from tick to tick is not underrated. NaN for a
    row with a batch missing or fewer than 8 ticks.
    """
    length = deviations.shape[1] // BATCHES
    if length < 2:
        return np.full(deviations.shape[0], np.nan)
    columns = [slice(b * length, (b + 1) * length) for b in range(BATCHES)]
    middles = [trimmed_mean(deviations[:, of], None if weights is None else weights[:, of]) for of in columns]
    variance: FloatArray = np.stack(middles, axis=1).var(axis=1, ddof=1) / BATCHES
    return variance


def typical_variance(variance: FloatArray) -> float:
    """The typical one of `variance` (C,), each resting on four batches; NaN when nothing is known."""
    known = variance[np.isfinite(variance)]
    # The median of chi-square with 3 degrees of freedom is 2.366.
    return float(np.median(known)) * 3.0 / 2.366 if known.size else np.nan


def spread_now(excess: FloatArray, variance: FloatArray, members: BoolArray) -> float:
    """The spread that this window alone shows: across `members` (C,), within what their course allows."""
    across, along = cross_spread(excess[members]), float(np.sqrt(typical_variance(variance[members])))
    if np.isfinite(along):
        across = float(np.clip(across, MIN_CROSS_TO_OWN_RATIO * along, MAX_CROSS_TO_OWN_RATIO * along))
    return max(across, MIN_SPREAD)


def pooled_spread(
    moment: FloatArray, seen: FloatArray, counted: BoolArray, typical: float
) -> tuple[FloatArray, FloatArray]:
    """The spread of each length of average in single-window units, and the values behind it; (K,) each.

    `moment` (K, C): each component's mean square in single-window units over `seen` (C,) windows; `counted`
    (C,): whose count; `typical`: standard error of one window. Each length leans on the next shorter one, so
    that a group whose windows are independent is soon known for it. Wandering members yield new values only
    with the square root of the windows, which is the law of `standard_error` again.
    """
    weight = np.where(counted, seen, 0.0)
    total = float(weight.sum())
    if total == 0.0:
        prior = np.full(LENGTHS, RATIO_PRIOR_VALUES)
        return np.full(LENGTHS, max(CROSS_TO_OWN_RATIO * typical, MIN_SPREAD)), prior
    most = MAX_MEAN_SQUARE_RATIO * row_median(np.where(weight > 0.0, moment, np.nan))[:, None]
    square = np.minimum(moment, most) @ weight / total
    longest = float(weight.max())
    values = np.maximum(total / longest * np.sqrt(np.maximum(longest / SCALE_WINDOWS, 1.0)) - 1.0, 0.0)
    pooled = np.empty(LENGTHS)
    before, prior_values = (CROSS_TO_OWN_RATIO * typical) ** 2, RATIO_PRIOR_VALUES
    for scale in range(LENGTHS):
        before = (prior_values * before + values[scale] * square[scale]) / (prior_values + values[scale])
        pooled[scale], prior_values = before, LENGTH_PRIOR_VALUES
    return np.maximum(np.sqrt(pooled), MIN_SPREAD), RATIO_PRIOR_VALUES + values


class GroupEvidence:
    """Evidence on each of N components of a group; float64 arrays, one column a component.

    `average` (R, N): mean of the evidence over ROW_WINDOWS windows, each bounded; `slowness` (N,): mean log
    ratio of the metric itself over SCALE_WINDOWS[SEVERITY_SCALE] windows, unbounded. `windows` (N,): windows
    behind them. `moment` (R, N): mean square of the average about the group's centre in single-window units,
    over `seen` (N,) windows. `noise` (N,): squared standard error of one whole window's evidence, over
    `heard` (N,) windows. `score` (N,): the last one. `onsets` (N,): how often it became slow, of late;
    `was_slow` (N,): 1.0 where the last score by itself was. `sum` (D, N): sums of the evidence less
    ONSET_DRIFTS a window, never below 0, and `sum_began` (D, N), when each last left 0, `sum_windows` (D, N)
    windows of evidence ago; `sum_until` (N,): end of the last samples in them. Times are epoch seconds.
    `steady` (N,): mean `load.steadiness` of its queue over STEADY_WINDOWS, a log; 0 where unknown.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.sum: FloatArray = np.zeros((ONSET_DRIFTS.size, 0))
        self.sum_began: FloatArray = np.zeros((ONSET_DRIFTS.size, 0))
        self.sum_windows: FloatArray = np.zeros((ONSET_DRIFTS.size, 0))
        self.sum_until: FloatArray = np.zeros(0)
        self.average: FloatArray = np.zeros((ROW_WINDOWS.size, 0))
        self.moment: FloatArray = np.zeros((ROW_WINDOWS.size, 0))
        self.slowness: FloatArray = np.zeros(0)
        self.windows: FloatArray = np.zeros(0)
        self.seen: FloatArray = np.zeros(0)
        self.noise: FloatArray = np.zeros(0)
        self.heard: FloatArray = np.zeros(0)
        self.score: FloatArray = np.zeros(0)
        self.onsets: FloatArray = np.zeros(0)
        self.was_slow: FloatArray = np.zeros(0)
        self.steady: FloatArray = np.zeros(0)
        self._rows: dict[str, int] = {}
        self._last: tuple[Sequence[str], NDArray[np.intp]] = ((), np.zeros(0, dtype=np.intp))

    def places(self, components: Sequence[str]) -> NDArray[np.intp]:
        """The columns of `components`, made where they are new; cheap when asked again for the same ones."""
        if self._last[0] is not components:
            new = [name for name in components if name not in self._rows]
            self._rows.update(zip(new, range(len(self.names), len(self.names) + len(new)), strict=True))
            self.names.extend(new)
            for name in _ARRAYS:
                before = getattr(self, name)
                setattr(self, name, np.pad(before, (*((0, 0),) * (before.ndim - 1), (0, len(new)))))
            places = np.fromiter(map(self._rows.__getitem__, components), np.intp, len(components))
            self._last = (components, places)
        return self._last[1]

    def add(
        self,
        places: NDArray[np.intp],
        excess: FloatArray,
        felt: FloatArray,
        weight: FloatArray,
        bound: float,
    ) -> None:
        """Adds one window's evidence `excess` (KINDS, C), each up to `bound`, and log ratios `felt` (C,).

        `weight` (C,): the share of the window with usable samples. Where it was less than 1 the evidence
        decays for the rest; 0 is idleness or absence.
        """
        windows = (
            self.windows[places] * 0.5 ** (np.maximum(1.0 - weight, 0.0) / IDLE_HALF_LIFE_WINDOWS) + weight
        )
        self.windows[places] = np.minimum(windows, SCALE_WINDOWS[-1])
        known = weight > 0
        rows, share = places[known], weight[known]
        fading = share * 2.0 / (SCALE_WINDOWS[:, None] + 1.0)
        gain = np.minimum(np.maximum(fading, share / self.windows[rows]), 1.0)
        for kind, own in enumerate(np.clip(excess[:, known], -bound, bound)):
            of = slice(kind * LENGTHS, (kind + 1) * LENGTHS)
            self.average[of, rows] += gain * (own - self.average[of, rows])
        self.slowness[rows] += gain[SEVERITY_SCALE] * (felt[known] - self.slowness[rows])

    def steadier(self, places: NDArray[np.intp], steadiness: FloatArray, weight: FloatArray) -> FloatArray:
        """The average of `steadiness` (C,) over STEADY_WINDOWS, this window with `weight` (C,) included."""
        before = self.steady[places]
        known = np.minimum(self.windows[places], STEADY_WINDOWS) + weight
        gain = np.divide(weight, known, out=np.zeros_like(before), where=known > 0)
        average: FloatArray = before + gain * (steadiness - before)
        return average

    def add_sums(
        self,
        places: NDArray[np.intp],
        excess: FloatArray,
        weight: FloatArray,
        span: tuple[float, float],
        shift_seconds: float,
    ) -> None:
        """Adds bounded evidence `excess` (C,) of the samples of `span`, with `weight` (C,), to the sums.

        It is less the middle of trusted peers' evidence: means of skewed noise are not 0 among peers.
        Windows without evidence before them count as windows like the peers', up to MAX_GAP_WINDOWS: what
        began after idleness or absence is not dated back to before.
        """
        (start, end), drift = span, ONSET_DRIFTS[:, None]
        rows, share = places[weight > 0], weight[weight > 0]
        missed = np.clip((start - self.sum_until[rows]) / shift_seconds, 0.0, MAX_GAP_WINDOWS)
        sums = np.maximum(self.sum[:, rows] - drift * missed, 0.0)
        rising = sums > 0.0
        self.sum_began[:, rows] = np.where(rising, self.sum_began[:, rows], start)
        self.sum_windows[:, rows] = np.where(rising, self.sum_windows[:, rows] + share, share)
        self.sum_until[rows] = end
        sums += share * (excess[weight > 0] - drift)
        self.sum[:, rows] = np.clip(sums, 0.0, MAX_SUM_WINDOWS * drift)

    def slow_since(self, places: NDArray[np.intp], level: FloatArray) -> FloatArray:
        """When slowness of the log ratio `level` (C,) began; (C,), infinite where the sums do not tell it.

        The begin of the last rise of a sum with a drift of half the level, the likeliest change point (E. S.
        Page, "Continuous Inspection Schemes", Biometrika 41, 1954); infinite also after MAX_ONSET_WINDOWS.
        """
        drift = np.abs(ONSET_DRIFTS[:, None] - level / 2.0).argmin(axis=0)
        told = (self.sum[drift, places] > 0.0) & (self.sum_windows[drift, places] <= MAX_ONSET_WINDOWS)
        since: FloatArray = np.where(told, self.sum_began[drift, places], np.inf)
        return since

    def young(self, places: NDArray[np.intp]) -> float:
        """By how much more than its spread says the group may vary, as long as that rests on few windows."""
        return float(min(np.sqrt(1.0 + YOUNG_WINDOWS / (1.0 + np.median(self.seen[places]))), MAX_YOUNG))

    def add_noise(self, places: NDArray[np.intp], variance: FloatArray) -> None:
        """Adds each component's squared standard error (C,) in this window; NaN = unknown."""
        known = np.isfinite(variance)
        rows = places[known]
        self.heard[rows] = np.minimum(self.heard[rows] + 1.0, NOISE_MEMORY_WINDOWS)
        self.noise[rows] += (variance[known] - self.noise[rows]) / self.heard[rows]

    def recurs(self, places: NDArray[np.intp], slow: BoolArray) -> BoolArray:
        """Whether each one was slow again and again, given who is `slow` now (C,): it still is in between.

        Counts the windows in which one became slow, forgotten over SCALE_WINDOWS[-1] windows.
        """
        onset = slow & ~(self.was_slow[places] > 0.0)
        self.was_slow[places] = slow
        count = self.onsets[places] * (1.0 - 1.0 / IDLE_HALF_LIFE_WINDOWS) + onset
        self.onsets[places] = np.minimum(count, MAX_ONSETS)
        return self.onsets[places] >= MIN_ONSETS

    def add_squares(self, places: NDArray[np.intp], square: FloatArray, weight: FloatArray) -> None:
        """Adds the squares (R, C), in single-window units, of the averages; `weight` (C,) as in `add`."""
        rows, share = places[weight > 0], np.minimum(weight[weight > 0], 1.0)
        self.seen[rows] = np.minimum(self.seen[rows] + share, SPREAD_MEMORY_WINDOWS)
        self.moment[:, rows] += share / self.seen[rows] * (square[:, weight > 0] - self.moment[:, rows])

    def restart(self, rows: NDArray[np.intp]) -> None:
        """Restarts the evidence of `rows` from the recent average, without mean squares and noise."""
        by_kind = self.average.reshape(KINDS, LENGTHS, -1)
        by_kind[:, RECENT_SCALE + 1 :, rows] = by_kind[:, RECENT_SCALE : RECENT_SCALE + 1][..., rows]
        self.slowness[rows] = self.average[RECENT_SCALE, rows]
        self.windows[rows] = np.minimum(self.windows[rows], SCALE_WINDOWS[RECENT_SCALE])
        self.moment[:, rows] = self.sum[:, rows] = 0.0
        for kept in (self.seen, self.noise, self.heard):
            kept[rows] = 0.0

    def lengths(self, places: NDArray[np.intp]) -> FloatArray:
        """How many windows each average rests on; (R, C), more than 0."""
        lengths: FloatArray = np.minimum(ROW_WINDOWS[:, None], self.windows[places][None, :])
        return np.maximum(lengths, MIN_LENGTH_WINDOWS)

    def forget(self, components: Collection[str]) -> None:
        """Frees the evidence on `components`."""
        kept = np.array([row for row, name in enumerate(self.names) if name not in components], dtype=np.intp)
        self.names = [self.names[row] for row in kept]
        self._rows = {name: row for row, name in enumerate(self.names)}
        for name in _ARRAYS:
            setattr(self, name, getattr(self, name)[..., kept])
        self._last = ((), np.zeros(0, dtype=np.intp))

    def state(self) -> dict[str, Any]:
        """Plain data from which `restore` goes on exactly."""
        arrays = {name: getattr(self, name).tolist() for name in _ARRAYS}
        return {"names": list(self.names), **arrays}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> "GroupEvidence":
        """The evidence that `state` was taken of. Raises ValueError, TypeError or KeyError on any other."""
        evidence = cls()
        evidence.names = [str(name) for name in state["names"]]
        evidence._rows = {name: row for row, name in enumerate(evidence.names)}
        for name in _ARRAYS:
            shape = (*getattr(evidence, name).shape[:-1], len(evidence.names))
            values = np.array(state.get(name, np.zeros(shape)), dtype=np.float64)
            # Earlier versions lack some, and knew one kind of evidence.
            if name in {"average", "moment"} and len(values) == LENGTHS:
                values = np.tile(values, (KINDS, 1))
            setattr(evidence, name, values.reshape(shape))
        return evidence
