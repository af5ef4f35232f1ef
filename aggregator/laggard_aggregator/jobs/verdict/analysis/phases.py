"""Phases: the spans of a job in which it reads, writes or does metadata operations.

The rows are denoised by wavelets, the background is learned from the quietest stretches, spans above it are
found with hysteresis, and their edges are refined on the rows themselves. A second pass finds phases that are
far weaker than the others. `dwt` is the method of the paper (NSDI '19, appendix B; IOSI, FAST '14).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from laggard_aggregator.jobs.verdict.analysis.background import Background, Mask, is_white, median_byte_rate
from laggard_aggregator.jobs.verdict.analysis.rate_series import FloatArray, RateSeries
from laggard_aggregator.jobs.verdict.analysis.spans import Span, closed, refined, runs, span_means, united
from laggard_aggregator.jobs.verdict.analysis.wavelet import denoised, low_pass

METHODS = ("laggard", "dwt")
DIRECTIONS = ("read", "write", "metadata")

_ENTER = 0.08
"""A phase is entered where the denoised rate exceeds this share of the job's level, above the background."""
_ENTER_SPREADS = 5.0
"""It also exceeds the background by this many spreads of its denoised rows."""
_LEAVE = 0.03
_LEAVE_SPREADS = 3.0
"""The edges are the first and last row above this share of the phase's own level, and above noise."""
_MARGIN = 8
"""Rows around a phase that belong to no background."""
_EDGE = 2
"""Rows around a phase that are left out when the background is learned once more."""
_LEAST_EVIDENCE = 6.0
"""Standard errors of a phase's mean above the background."""
_SPIKE = 0.5
"""Of one or two rows: the least share of the job's level."""
_SHORT = 3
_BULK = 0.6
"""Share of the volume that longer spans move where short ones are blips of the background."""
_PASSES = 3
_WEAK_VOLUME = 0.01
"""Of a weaker phase, as a share of the median volume of the stronger ones."""
_CONTRAST = (1.0, 3.0)
"""Least level above the background, as a multiple of it: of the first pass, of weaker phases."""
_TRIVIAL = {"read": 2.0**20, "write": 2.0**20, "metadata": 20.0}
"""Rate a second, of a job whose rate never changes: below it is background, above it one phase."""
_NEGLIGIBLE = 1 / 32
"""Of the trivial rate: no phases below."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase. `start`, `end`: seconds, half a row before its first and after its last row.

    `amount`: bytes or operations of its rows; `unknown_seconds`: of its gaps.
    """

    direction: str
    start: float
    end: float
    amount: float
    unknown_seconds: float


def find_phases(series: RateSeries, direction: str, method: str = METHODS[0]) -> list[Phase]:
    """The phases of one direction, in order of time; empty for a job that does nothing in it."""
    rows = series.gridded()
    if method == "dwt":
        return _with_times(series, direction, dwt_spans(rows))
    return _with_times(series, direction, phase_spans(rows, _TRIVIAL[direction] * series.step))


def phase_spans(rows: FloatArray, trivial: float) -> list[Span]:
    """Spans of phases in `rows`, shape (n,), amounts with NaN in gaps; `trivial` is an amount a row."""
    known = np.isfinite(rows)
    if not known.any() or float(rows[known].max()) <= 0:
        return []
    rate = _filled(rows, known)
    search = _Search(rate, denoised(rate), known, trivial)
    is_open = np.ones(rate.size, np.bool_)
    found = search.spans(is_open, _CONTRAST[0])
    more = found
    for _ in range(1, _PASSES):
        for first, past in more:
            is_open[max(first - _MARGIN, 0) : past + _MARGIN] = False
        if not more or is_open.sum() < 4 * _MARGIN or is_white(rate, is_open):
            break
        usual = float(np.median([rate[a:b].sum() for a, b in found]))
        weaker = search.spans(is_open, _CONTRAST[1])
        more = [(a, b) for a, b in weaker if b - a >= _SHORT and rate[a:b].sum() >= _WEAK_VOLUME * usual]
        found = sorted(found + more)
    return found


def dwt_spans(rows: FloatArray) -> list[Span]:
    """Spans where the low-pass reconstruction of `rows`, shape (n,), exceeds its mean; gaps count as zero."""
    rate = np.nan_to_num(rows, nan=0.0)
    smooth = low_pass(rate)
    return runs(smooth > smooth.mean())


@dataclass(frozen=True, slots=True)
class _Search:
    """Rows of one direction: filled, denoised, and which of them are known."""

    rate: FloatArray
    smooth: FloatArray
    known: Mask
    trivial: float

    def spans(self, is_open: Mask, contrast: float) -> list[Span]:
        """Spans of the open rows that stand out from the background of these rows.

        A background learned from the quietest stretches may be too low where it is sparse; all rows outside
        of the spans found then give it. Spans of a few rows may be blips of it.
        """
        background = Background.learned(self.rate, self.smooth, is_open)
        found = self._above(background, is_open, contrast)
        outside = is_open.copy()
        for first, past in found:
            if past - first > _SHORT:
                outside[max(first - _EDGE, 0) : past + _EDGE] = False
        if found and outside.sum() > 8 * _MARGIN and is_white(self.rate, outside):
            second = Background.of(self.rate[outside], self.smooth[outside])
            if second.spread > 1.5 * background.spread:
                found = self._above(second, is_open, contrast)
        return _without_blips(found, self.rate)

    def _above(self, background: Background, is_open: Mask, contrast: float) -> list[Span]:
        above = np.where(is_open, np.maximum(self.smooth - background.mean, 0.0), 0.0)
        level = median_byte_rate(above)
        if level <= max(contrast * background.mean, 4 * background.smooth_spread):
            is_one_phase = bool(is_open.all()) and float(self.rate.mean()) >= self.trivial
            return [(0, self.rate.size)] if is_one_phase else []
        if level < _NEGLIGIBLE * self.trivial or is_white(self.rate, is_open):
            return []
        enter = max(_ENTER * level, _ENTER_SPREADS * background.smooth_spread)
        candidates = closed(runs(above > enter), self.known)
        levels = span_means(self.rate, candidates) - background.mean
        bounds = background.mean + np.clip(_LEAVE * levels, _LEAVE_SPREADS * background.spread, 0.5 * levels)
        edged = united(
            refined(span, self.rate, bound, is_open)
            for span, bound in zip(candidates, bounds.tolist(), strict=True)
        )
        if not edged:
            return []
        lengths = np.array([past - first for first, past in edged])
        excess = span_means(self.rate, edged) - background.mean
        peaks = np.array([self.rate[first:past].max() for first, past in edged]) - background.mean
        least = np.where(lengths < _SHORT, _SPIKE, _ENTER) * level
        good = (excess * np.sqrt(lengths) > _LEAST_EVIDENCE * background.spread) & (peaks > least)
        return [edged[i] for i in np.flatnonzero(good)]


def _without_blips(found: list[Span], rate: FloatArray) -> list[Span]:
    """`found` without spans of a few rows, where these are the most and yet move little: background."""
    longer = [(first, past) for first, past in found if past - first > _SHORT]
    volume = sum(float(rate[first:past].sum()) for first, past in found)
    moved = sum(float(rate[first:past].sum()) for first, past in longer)
    are_blips = 2 * len(longer) <= len(found) and moved >= _BULK * volume
    return longer if are_blips else found


def _filled(rows: FloatArray, known: Mask) -> FloatArray:
    """`rows` with gaps interpolated, for the search alone.

    The row after a gap holds the amount of one row or of the whole gap; its rate is the one between both that
    is nearest to the row after it.
    """
    if known.all():
        return rows
    place = np.flatnonzero(known)
    values = rows[place]
    widths = np.diff(place, prepend=place[0] - 1)
    after = np.flatnonzero(widths > 1)
    after = after[after + 1 < values.size]
    values[after] = np.clip(values[after + 1], values[after] / widths[after], values[after])
    return np.interp(np.arange(rows.size), place, values)


def _with_times(series: RateSeries, direction: str, found: Iterable[Span]) -> list[Phase]:
    phases = []
    sums = np.concatenate(([0.0], np.cumsum(series.amounts)))
    for first, past in found:
        low, high = np.searchsorted(series.place, (first, past))
        if low == high:
            continue
        start, end = float(series.times[low]), float(series.times[high - 1])
        unknown = (end - start) - int(high - 1 - low) * series.step
        unknown = unknown if unknown > series.step / 2 else 0.0
        half = series.step / 2
        phases.append(Phase(direction, start - half, end + half, float(sums[high] - sums[low]), unknown))
    return phases
