"""Duty cycles: in which part of the time an anomalous component is slow, and how many times slower then.

Its log ratios to the peers, interval by interval, are counted in a histogram that fades. Where they fall into
two classes far apart, of which the lower is like the peers, and it became slow several times, the fault comes
and goes; one that was slow until its recovery has two classes, too, and became slow once. The classes are
parted where the variance between them is largest (N. Otsu, "A Threshold Selection Method from Gray-Level
Histograms", IEEE Trans. SMC 9, 1979). Nothing here decides who is anomalous.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, DutyCycle, FloatArray

BIN_LOG_WIDTH, LOWEST_LOG_RATIO, BINS = 0.0625, -1.0, 128
"""Bins of the log ratio, up to 1,100 times slower; larger ones count in the outermost."""
HISTOGRAM_WINDOWS = 16.0
"""Windows over which the histogram fades; after as many without being anomalous it is dropped."""
MIN_INTERVALS = 12.0
"""Fewest intervals in the histogram that tell a duty cycle."""
MIN_SHARE, MAX_SHARE = 0.1, 0.8
"""Less is spikes; more is slowness with exceptions."""
MAX_LOW_LOG_RATIO = 0.13
"""Highest mean of the lower class, still harmless."""
MIN_STEP_LOG_RATIO = float(np.log(1.5))
"""Least distance of the classes' means."""
MIN_STEP_SPREADS = 3.4
"""The same in standard deviations within the classes; both halves of a normal law are 2.6 apart."""
MIN_RISES = 3.0
"""How often it must have become slow, forgotten like the histogram."""
MAX_COURSES = 1024
"""Components of a group that have a histogram at most: a limit of memory and time, 1 KB and 10 us each."""

_CENTRES = LOWEST_LOG_RATIO + BIN_LOG_WIDTH * (np.arange(BINS) + 0.5)


class Classes(NamedTuple):
    """The two classes of each histogram; (N,) each.

    `share`: of the intervals in the upper one; `low`, `high`: their mean log ratios, NaN where all is in one
    bin; `told`: whether they are those of a duty cycle.
    """

    share: FloatArray
    low: FloatArray
    high: FloatArray
    told: BoolArray


def classes(counts: FloatArray) -> Classes:
    """The classes of `counts` (N, BINS), intervals by log ratio to the peers."""
    below, mass = np.cumsum(counts, axis=1), np.cumsum(counts * _CENTRES, axis=1)
    total = below[:, -1:]
    low_count, high_count = below[:, :-1], total - below[:, :-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = mass[:, :-1] / low_count, (mass[:, -1:] - mass[:, :-1]) / high_count
        between = np.nan_to_num(low_count * high_count * (high - low) ** 2)
        at = between.argmax(axis=1)[:, None]
        mean = mass[:, -1:] / total
        variance = (counts * (_CENTRES - mean) ** 2).sum(axis=1) / total[:, 0]
        low, high, between, share = (
            np.take_along_axis(column, at, axis=1)[:, 0]
            for column in (low, high, between, high_count / total)
        )
        within = np.maximum(variance - between / total[:, 0] ** 2, 0.0) + BIN_LOG_WIDTH**2 / 12.0
        told = (total[:, 0] >= MIN_INTERVALS) & (share >= MIN_SHARE) & (share <= MAX_SHARE)
        told &= (low <= MAX_LOW_LOG_RATIO) & (high - low >= MIN_STEP_LOG_RATIO)
        told &= high - low >= MIN_STEP_SPREADS * np.sqrt(within)
    return Classes(share, low, high, told)


@dataclass(slots=True)
class _Course:
    """The recent past of one component.

    `counts` (BINS,): its histogram. `rises`: how often it became slow lately. `was_slow`: in its last
    interval. `quiet`: windows in a row in which it was not anomalous. `told`: a duty cycle in its last
    anomalous window, and in all since.
    """

    counts: FloatArray = field(default_factory=lambda: np.zeros(BINS))
    rises: float = 0.0
    was_slow: bool = False
    quiet: int = 0
    told: bool = False


class DutyCycles:
    """The courses of at most MAX_COURSES components of a group that are anomalous, or were of late."""

    def __init__(self) -> None:
        self._courses: dict[str, _Course] = {}

    def add(
        self, components: Sequence[str], ratios: FloatArray, anomalous: BoolArray
    ) -> Mapping[str, DutyCycle]:
        """Adds one window; returns the duty cycles of components that have one.

        Found in an anomalous window, it holds in those between that are not.
        `ratios` (C, T): log ratios to the peers by interval, NaN = no I/O; `anomalous` (C,). Which components
        have a place does not depend on their order.
        """
        if not self._courses and not anomalous.any():
            return {}
        new = sorted({components[c] for c in np.flatnonzero(anomalous).tolist()} - self._courses.keys())
        for name in new[: MAX_COURSES - len(self._courses)]:
            self._courses[name] = _Course()
        rows = [c for c, name in enumerate(components) if name in self._courses]
        courses = [self._courses[components[c]] for c in rows]
        ratios, fading = ratios[rows], 1.0 - 1.0 / HISTOGRAM_WINDOWS
        for course, row in zip(courses, _histograms(ratios), strict=True):
            course.counts = course.counts * fading + row
        split = classes(np.array([course.counts for course in courses]).reshape(-1, BINS))
        before = np.array([course.was_slow for course in courses], dtype=np.bool_)
        slow = _filled(ratios > ((split.low + split.high) / 2.0)[:, None], np.isfinite(ratios), before)
        # Without two classes apart a rise is of noise.
        rises = (slow[:, 1:] & ~slow[:, :-1]).sum(axis=1) * split.told
        told = {}
        for at, (c, course) in enumerate(zip(rows, courses, strict=True)):
            course.rises = course.rises * fading + float(rises[at])
            course.was_slow = bool(slow[at, -1])
            course.quiet = 0 if anomalous[c] else course.quiet + 1
            apart = bool(split.told[at]) and course.rises >= MIN_RISES
            course.told = apart and (bool(anomalous[c]) or course.told)
            if course.told:
                told[components[c]] = DutyCycle(float(split.share[at]), float(np.exp(split.high[at])))
        self.forget([name for name, course in self._courses.items() if course.quiet > HISTOGRAM_WINDOWS])
        return told

    def forget(self, components: Collection[str]) -> None:
        """Frees the courses of `components`."""
        for name in components:
            self._courses.pop(name, None)

    def state(self) -> dict[str, Any]:
        """The state as plain data."""
        return {
            name: [course.rises, course.was_slow, course.quiet, course.told, course.counts.tolist()]
            for name, course in self._courses.items()
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores `state()`. Raises ValueError when it is malformed."""
        self._courses = {}
        for name, (rises, was_slow, quiet, told, counts) in state.items():
            histogram = np.array(counts, dtype=np.float64).reshape(BINS)
            self._courses[str(name)] = _Course(
                histogram, float(rises), bool(was_slow), int(quiet), bool(told)
            )


def _filled(slow: BoolArray, known: BoolArray, before: BoolArray) -> BoolArray:
    """`slow` (N, T) after the state `before` (N,); where it is not `known` as in the interval before."""
    columns = np.where(known, np.arange(1, slow.shape[1] + 1), 0)
    latest = np.maximum.accumulate(np.pad(columns, ((0, 0), (1, 0))), axis=1)
    filled: BoolArray = np.take_along_axis(np.column_stack([before, slow]), latest, axis=1)
    return filled


def _histograms(ratios: FloatArray) -> FloatArray:
    """Counts (N, BINS) of each row's log ratios (N, T)."""
    size = len(ratios)
    known = np.isfinite(ratios)
    place = np.clip((np.where(known, ratios, 0.0) - LOWEST_LOG_RATIO) // BIN_LOG_WIDTH, 0, BINS - 1)
    of_row = place.astype(np.intp) + BINS * np.arange(size)[:, None]
    counts = np.bincount(of_row[known], minlength=size * BINS).reshape(size, BINS)
    return counts.astype(np.float64)
