"""Evidence: averages of log ratios over 1 to 32 windows, their mean squares, and sums since the onset."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, FloatArray
from laggard_aggregator.detect.laggard.component_arrays import ComponentArrays, Places

KINDS = 2
"""Kinds of evidence: the trimmed mean, which counts slowness by the time that it costs, and the mean of the
faster half of the intervals, which varies less, but misses slowness in less than half of the time."""
FASTER_HALF = 1
"""Index of the latter kind."""
SCALE_WINDOWS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
"""Lengths of the averages of each kind of evidence, in windows."""
LENGTHS = SCALE_WINDOWS.size
ROW_WINDOWS = np.tile(SCALE_WINDOWS, KINDS)
"""The same by row of `GroupEvidence.average`: one kind after the other."""
SEVERITY_SCALE = 2
"""Index of the average that gives the severity."""
RECENT_SCALE = 1
"""Index of the average that gives the present state: its two windows outweigh the past eight times."""
HARMLESS_LOG_RATIO = 0.14
"""Log ratio of a lasting difference that is still harmless: between the 1.08 of healthy peers and 1.2."""
MEMORY_WINDOWS = float(SCALE_WINDOWS[-1])
"""Windows after which the past counts for little: onsets, sums, and how latency goes with load; half of
`windows` is forgotten after as many without I/O."""
NOISE_SECONDS = 9600.0
"""Time over which mean squares and components' own noise are averaged: noise changes with the hours. At least
MEMORY_WINDOWS."""
RECENT_SECONDS = 900.0
"""Time over which load is recent: caches and flash are slowed by it later. At least one window."""
MIN_LENGTH_WINDOWS = 0.01
"""A divisor where there is no evidence."""
MIN_ONSETS, MAX_ONSETS = 3.4, 5.0
"""How often one became slow, lately, from which it is slow in between too, and the most that is counted."""
ONSET_DRIFTS = np.array([HARMLESS_LOG_RATIO, 0.2, 0.35])
"""Log ratios a window that are subtracted from sums of evidence: a harmless difference, which may last for
good, and half of a lasting factor of 1.5 and 2."""
MAX_ONSET_WINDOWS = 96.0
"""A sum that rises for more windows with evidence is of a small difference that is there for good."""
MAX_GAP_WINDOWS = 8.0
"""Most windows without a difference that a gap counts as: enough to end a chance sum, not one of slowness."""


class GroupEvidence(ComponentArrays):
    """Evidence on each of N components of a group; float64 arrays, one column a component.

    `average` (R, N): mean of the evidence over ROW_WINDOWS windows, each bounded; over one it is the last
    window's alone, however little of it has samples: `last` (N,), at most 1. `slowness` (N,): mean log
    ratio of the metric itself over SCALE_WINDOWS[SEVERITY_SCALE] windows, unbounded. `windows` (N,): windows
    behind them. `moment` (R, N): mean square of the average about the group's centre in single-window units,
    over `seen` (N,) windows. `noise` (N,): squared standard error of one whole window's evidence, over
    `heard` (N,) windows. `score` (N,): the last one. `onsets` (N,): how often it became slow, of late;
    `was_slow` (N,): 1.0 where the last score by itself was. `sum` (D, N): sums of the evidence less
    ONSET_DRIFTS a window, never below 0, and `sum_began` (D, N), when each last left 0, `sum_windows` (D, N)
    windows of evidence ago; `sum_until` (N,): end of the last samples in them. Times are epoch seconds.
    `steady` (N,): mean `load.steadiness` of its queue over as many windows as `slowness`, a log; 0 where
    unknown. `recent_load`, `usual_load` (N,): mean log of its load over its peers', over RECENT_SECONDS and
    over `noise_windows`, and `usual_ratio` (N,): mean log ratio of the metric, over `noise_windows`;
    `load_windows` (N,): windows behind these. `shift_seconds`: time from one window's end to the next.
    `noise_windows`: windows over which `moment` and `noise` are averaged.
    """

    SHAPES: ClassVar[Mapping[str, tuple[int, ...]]] = {
        **dict.fromkeys(("sum", "sum_began", "sum_windows"), (ONSET_DRIFTS.size,)),
        **dict.fromkeys(("average", "moment"), (ROW_WINDOWS.size,)),
        **dict.fromkeys(("sum_until", "slowness", "windows", "seen", "noise", "heard", "score"), ()),
        **dict.fromkeys(("onsets", "was_slow", "steady", "last"), ()),
        **dict.fromkeys(("recent_load", "usual_load", "usual_ratio", "load_windows"), ()),
    }
    sum: FloatArray
    sum_began: FloatArray
    sum_windows: FloatArray
    sum_until: FloatArray
    average: FloatArray
    moment: FloatArray
    slowness: FloatArray
    windows: FloatArray
    seen: FloatArray
    noise: FloatArray
    heard: FloatArray
    score: FloatArray
    onsets: FloatArray
    was_slow: FloatArray
    steady: FloatArray
    last: FloatArray
    recent_load: FloatArray
    usual_load: FloatArray
    usual_ratio: FloatArray
    load_windows: FloatArray

    def __init__(self, shift_seconds: float) -> None:
        super().__init__()
        self.shift_seconds = shift_seconds
        self.noise_windows = max(MEMORY_WINDOWS, NOISE_SECONDS / shift_seconds)

    def add(
        self,
        places: Places,
        excess: FloatArray,
        felt: FloatArray,
        weight: FloatArray,
        bound: float,
    ) -> None:
        """Adds one window's evidence `excess` (KINDS, C), each up to `bound`, and log ratios `felt` (C,).

        `weight` (C,): the share of the window with usable samples. Where it was less than 1 the
        number of windows behind the averages decays for the rest; 0 is idleness or absence. A part of a
        window varies more than a whole one, and by itself it is bounded the later.
        """
        windows = self.windows[places] * 0.5 ** (np.maximum(1.0 - weight, 0.0) / MEMORY_WINDOWS) + weight
        self.windows[places] = np.minimum(windows, SCALE_WINDOWS[-1])
        known = weight > 0
        rows, share = places[known], weight[known]
        fading = share * 2.0 / (SCALE_WINDOWS[:, None] + 1.0)
        gain = np.minimum(np.maximum(fading, share / self.windows[rows]), 1.0)
        gain[0], self.last[rows] = 1.0, np.minimum(share, 1.0)
        most = np.full(gain.shape, bound)
        most[0] /= np.sqrt(self.last[rows])
        for kind, own in enumerate(excess[:, known]):
            own_rows = slice(kind * LENGTHS, (kind + 1) * LENGTHS)
            self.average[own_rows, rows] += gain * (np.clip(own, -most, most) - self.average[own_rows, rows])
        self.slowness[rows] += gain[SEVERITY_SCALE] * (felt[known] - self.slowness[rows])

    def steadier(self, places: Places, weight: FloatArray, steadiness: FloatArray) -> FloatArray:
        """The average of `steadiness` (C,) over SCALE_WINDOWS[SEVERITY_SCALE] windows, with this one.

        `weight` (C,) as in `add`.
        """
        before = self.steady[places]
        known = np.minimum(self.windows[places], SCALE_WINDOWS[SEVERITY_SCALE]) + weight
        gain = np.divide(weight, known, out=np.zeros_like(before), where=known > 0)
        average: FloatArray = before + gain * (steadiness - before)
        return average

    def add_sums(
        self,
        places: Places,
        excess: FloatArray,
        weight: FloatArray,
        span: tuple[float, float],
    ) -> None:
        """Adds bounded evidence `excess` (C,) of the samples of `span`, with `weight` (C,), to the sums.

        It is less the middle of trusted peers' evidence: means of skewed noise are not 0 among peers.
        Windows without evidence before them count as windows like the peers', up to MAX_GAP_WINDOWS: what
        began after idleness or absence is not dated back to before.
        """
        (start, end), drift = span, ONSET_DRIFTS[:, None]
        rows, share = places[weight > 0], weight[weight > 0]
        missed = np.clip((start - self.sum_until[rows]) / self.shift_seconds, 0.0, MAX_GAP_WINDOWS)
        sums = np.maximum(self.sum[:, rows] - drift * missed, 0.0)
        rising = sums > 0.0
        self.sum_began[:, rows] = np.where(rising, self.sum_began[:, rows], start)
        self.sum_windows[:, rows] = np.where(rising, self.sum_windows[:, rows] + share, share)
        self.sum_until[rows] = end
        sums += share * (excess[weight > 0] - drift)
        self.sum[:, rows] = np.clip(sums, 0.0, MEMORY_WINDOWS * drift)

    def slow_since(self, places: Places, level: FloatArray) -> FloatArray:
        """When slowness of the log ratio `level` (C,) began; (C,), infinite where the sums do not tell it.

        The begin of the last rise of a sum with a drift of half the level, the likeliest change point (E. S.
        Page, "Continuous Inspection Schemes", Biometrika 41, 1954); infinite also after MAX_ONSET_WINDOWS.
        """
        drift = np.abs(ONSET_DRIFTS[:, None] - level / 2.0).argmin(axis=0)
        told = (self.sum[drift, places] > 0.0) & (self.sum_windows[drift, places] <= MAX_ONSET_WINDOWS)
        since: FloatArray = np.where(told, self.sum_began[drift, places], np.inf)
        return since

    def load_ahead(self, places: Places) -> FloatArray:
        """The log of recent load over the component's usual load; (C,), 0 where unknown."""
        ahead: FloatArray = self.recent_load[places] - self.usual_load[places]
        return ahead

    def add_load(self, places: Places, load: FloatArray, ratio_ahead: FloatArray) -> None:
        """Adds one window's log of the load over the peers', and of the metric over `usual_ratio`; (C,) each.

        An unknown load (NaN), as of an idle component, counts as the usual one, so that recent load passes.
        """
        known = np.isfinite(load) & np.isfinite(ratio_ahead)
        rows = places[known]
        self.load_windows[rows] = np.minimum(self.load_windows[rows] + 1.0, self.noise_windows)
        self.usual_load[rows] += (load[known] - self.usual_load[rows]) / self.load_windows[rows]
        self.usual_ratio[rows] += ratio_ahead[known] / self.load_windows[rows]
        now = np.where(known, load, self.usual_load[places])
        windows = np.clip(self.load_windows[places], 1.0, max(RECENT_SECONDS / self.shift_seconds, 1.0))
        self.recent_load[places] += (now - self.recent_load[places]) / windows

    def add_noise(self, places: Places, variance: FloatArray) -> None:
        """Adds each component's squared standard error (C,) in this window; NaN = unknown."""
        known = np.isfinite(variance)
        rows = places[known]
        self.heard[rows] = np.minimum(self.heard[rows] + 1.0, self.noise_windows)
        self.noise[rows] += (variance[known] - self.noise[rows]) / self.heard[rows]

    def recurs(self, places: Places, slow: BoolArray) -> BoolArray:
        """Whether each one was slow again and again, given who is `slow` now (C,): it still is in between.

        Counts the windows in which one became slow, forgotten over MEMORY_WINDOWS.
        """
        onset = slow & ~(self.was_slow[places] > 0.0)
        self.was_slow[places] = slow
        count = self.onsets[places] * (1.0 - 1.0 / MEMORY_WINDOWS) + onset
        self.onsets[places] = np.minimum(count, MAX_ONSETS)
        return self.onsets[places] >= MIN_ONSETS

    def add_squares(self, places: Places, square: FloatArray, weight: FloatArray) -> None:
        """Adds the squares (R, C), in single-window units, of the averages; `weight` (C,) as in `add`."""
        rows, share = places[weight > 0], np.minimum(weight[weight > 0], 1.0)
        self.seen[rows] = np.minimum(self.seen[rows] + share, self.noise_windows)
        self.moment[:, rows] += share / self.seen[rows] * (square[:, weight > 0] - self.moment[:, rows])

    def restart(self, rows: Places) -> None:
        """Restarts the evidence of `rows` from the recent average, without mean squares and noise.

        Load is as it was.
        """
        by_kind = self.average.reshape(KINDS, LENGTHS, -1)
        by_kind[:, RECENT_SCALE + 1 :, rows] = by_kind[:, RECENT_SCALE : RECENT_SCALE + 1][..., rows]
        self.slowness[rows] = self.usual_ratio[rows] = self.average[RECENT_SCALE, rows]
        self.windows[rows] = np.minimum(self.windows[rows], SCALE_WINDOWS[RECENT_SCALE])
        self.moment[:, rows] = self.sum[:, rows] = 0.0
        for kept in (self.seen, self.noise, self.heard):
            kept[rows] = 0.0

    def lengths(self, places: Places) -> FloatArray:
        """How many windows each average rests on; (R, C), more than 0."""
        lengths: FloatArray = np.minimum(ROW_WINDOWS[:, None], self.windows[places][None, :])
        lengths[::LENGTHS] = self.last[places]
        return np.maximum(lengths, MIN_LENGTH_WINDOWS)

    def restored(self, state: Mapping[str, Any]) -> Self:
        """Itself, going on from `state`; before version 7 of one kind of evidence, which both start with."""
        both = {
            name: np.tile(state[name], (KINDS, 1))
            for name in ("average", "moment")
            if len(state[name]) == LENGTHS
        }
        super().restored({**state, **both})
        self.seen = np.minimum(self.seen, self.noise_windows)  # up to 96 before version 8
        return self
