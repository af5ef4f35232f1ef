"""Phases: the spans of a job in which it reads, writes or does metadata operations.

The rows are denoised by wavelets, the background is learned from the quietest stretches, spans above it are
found with hysteresis, and their edges are refined on the rows themselves. A second pass finds phases that are
far weaker than the others. `dwt` is the method of the paper (NSDI '19, appendix B; IOSI, FAST '14).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from laggard_aggregator.jobs.join.busy_time import (
    busy_shares,
    edge_doubt,
    late_ends,
    pauses,
    share_in_doubt,
    usual_change,
)
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
"""Of one or two rows, added up as a phase shorter than a row may lie in two: the least share of the job's
level."""
_SILENT = 0.01
"""Share of a level below which the background is silence."""
_SHORT = 3
_BULK = 0.6
"""Share of the volume that longer spans move where short ones are blips of the background."""
_PASSES = 3
_WEAK_VOLUME = 0.01
"""Least volume of a weaker phase, as a share of the median volume of the stronger ones."""
_CONTRAST = 3.0
"""Least level above the background, as a multiple of it: with less the job works all the time."""
_WITHIN_READING = 1.5
"""Readings: a phase that lasted no longer may have lasted any part of one."""
_SHORT_READINGS = 2.05
"""Readings: of a phase that lasted no longer the rate is a least."""
_TRIVIAL = {"read": 2.0**20, "write": 2.0**20, "metadata": 20.0}
"""Rate a second, of a job whose rate never changes: below it is background, above it one phase."""
_NEGLIGIBLE = 1 / 32
"""Share of the trivial rate below which there are no phases."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase. `start`, `end`: seconds, half a row before its first and after its last row.

    `amount`: bytes or operations of its rows; `unknown_seconds`: of its gaps. `busy_seconds`: time in which
    they moved, which is less where the first and last rows are partly filled. `is_timed`: whether that is
    known; of a phase within one reading it is the most that it can be. `rate_error`: by how much the rate may
    differ; None where it is the least that the rate can be.
    """

    direction: str
    start: float
    end: float
    amount: float
    unknown_seconds: float
    busy_seconds: float
    is_timed: bool = True
    rate_error: float | None = None

    @property
    def rate(self) -> float:
        """Amount a second while it moved."""
        return self.amount / self.busy_seconds


def timed(phases: Sequence[Phase]) -> Sequence[Phase]:
    """Those that count for the time of a run.

    A few metadata operations within one reading took no known time: they count where there is nothing else.
    """
    known = [phase for phase in phases if phase.is_timed or phase.direction != "metadata"]
    return known or phases


def find_phases(
    series: RateSeries, direction: str, method: str = METHODS[0], reading_seconds: float | None = None
) -> list[Phase]:
    """The phases of one direction, in order of time; empty for a job that does nothing in it.

    `reading_seconds`: mean time between the readings that rows are from, where it is not that of a row.
    """
    rows = series.gridded()
    spans = dwt_spans(rows) if method == "dwt" else phase_spans(rows, _TRIVIAL[direction] * series.step)
    interval = max((reading_seconds or series.step) / series.step, 1.0)
    return _with_times(series, direction, spans, interval)


def phase_spans(rows: FloatArray, trivial: float) -> list[Span]:
    """Spans of phases in `rows`, shape (n,), amounts with NaN in gaps; `trivial` is an amount a row."""
    known = np.isfinite(rows)
    if not known.any() or float(rows[known].max()) <= 0:
        return []
    rate = _filled(rows, known)
    search = _Search(rate, denoised(rate), known, trivial)
    is_open = np.ones(rate.size, np.bool_)
    spans = search.spans(is_open)
    more = spans
    for _ in range(1, _PASSES):
        for first, past in more:
            is_open[max(first - _MARGIN, 0) : past + _MARGIN] = False
        if not more or is_open.sum() < 4 * _MARGIN or is_white(rate, is_open):
            break
        usual = float(np.median([rate[a:b].sum() for a, b in spans]))
        weaker = search.spans(is_open)
        more = [(a, b) for a, b in weaker if b - a >= _SHORT and rate[a:b].sum() >= _WEAK_VOLUME * usual]
        spans = sorted(spans + more)
    return spans


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

    def spans(self, is_open: Mask) -> list[Span]:
        """Spans of the open rows that stand out from the background of these rows.

        A background learned from the quietest stretches may be too low where it is sparse; all rows outside
        of the spans found then give it. Low spans of a few rows may be blips of it.
        """
        background = Background.learned(self.rate, self.smooth, is_open)
        above = self._above(background, is_open)
        outside = is_open.copy()
        level = median_byte_rate(np.concatenate([[0.0], *(self.rate[a:b] for a, b in above)]))
        tall = level if self._is_silent(background, level) else np.inf
        for first, past in above:
            if past - first > _SHORT or self.rate[first:past].sum() >= tall:
                outside[max(first - _EDGE, 0) : past + _EDGE] = False
        if above and outside.sum() > 8 * _MARGIN and is_white(self.rate, outside):
            second = Background.of(self.rate[outside], self.smooth[outside])
            if second.spread > 1.5 * background.spread:
                above = self._above(second, is_open)
        return _without_blips(above, self.rate)

    def _above(self, background: Background, is_open: Mask) -> list[Span]:
        above = np.where(is_open, np.maximum(self.smooth - background.mean, 0.0), 0.0)
        level = median_byte_rate(above)
        if level <= max(_CONTRAST * background.mean, 4 * background.smooth_spread):
            return self._one_phase(is_open)
        if level < _NEGLIGIBLE * self.trivial:
            return []
        if not self._is_silent(background, level) and is_white(self.rate, is_open):
            return self._one_phase(is_open)
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
        is_short = lengths < _SHORT
        heights = np.where(is_short, excess * lengths, peaks)
        least = np.where(is_short, _SPIKE, _ENTER) * level
        good = (excess * np.sqrt(lengths) > _LEAST_EVIDENCE * background.spread) & (heights > least)
        return [edged[i] for i in np.flatnonzero(good)]

    def _is_silent(self, background: Background, level: float) -> bool:
        """Whether what has this level is no noise of the background."""
        return level >= self.trivial and background.mean <= _SILENT * level

    def _one_phase(self, is_open: Mask) -> list[Span]:
        """All rows, of a job whose rate never changes and is not trivial."""
        is_one_phase = bool(is_open.all()) and float(self.rate.mean()) >= self.trivial
        return [(0, self.rate.size)] if is_one_phase else []


def _without_blips(spans: list[Span], rate: FloatArray) -> list[Span]:
    """`spans` without those of a few rows, where these are the most and yet move little: background."""
    longer = [(first, past) for first, past in spans if past - first > _SHORT]
    volume = sum(float(rate[first:past].sum()) for first, past in spans)
    moved = sum(float(rate[first:past].sum()) for first, past in longer)
    are_blips = 2 * len(longer) <= len(spans) and moved >= _BULK * volume
    return longer if are_blips else spans


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


def _with_times(series: RateSeries, direction: str, spans: Iterable[Span], interval: float) -> list[Phase]:
    phases = []
    rows = np.nan_to_num(series.gridded())
    sums = np.concatenate(([0.0], np.cumsum(series.amounts)))
    for first, past in spans:
        low, high = np.searchsorted(series.place, (first, past))
        if low == high:
            continue
        start, end = float(series.times[low]), float(series.times[high - 1])
        unknown = (end - start) - int(high - 1 - low) * series.step
        unknown = unknown if unknown > series.step / 2 else 0.0
        half = series.step / 2
        amount, seconds = float(sums[high] - sums[low]), end - start + series.step
        busy = _busy_rows(rows, first, past, interval)
        if series.busy is not None:
            busy = float(series.busy[low:high].sum()) / series.step
        doubt = edge_doubt(1, interval, usual_change(rows[first:past], interval))
        paused = pauses(rows[first:past], interval)
        busy_seconds = min(busy * series.step, seconds) or seconds
        least = busy_seconds - (doubt + paused) * series.step
        most = busy_seconds + (doubt + late_ends(1, interval)) * series.step
        is_timed = busy > _WITHIN_READING * interval
        is_known = busy > _SHORT_READINGS * interval and least > 0
        phases.append(
            Phase(
                direction,
                *(start - half, end + half, amount, unknown),
                busy_seconds=busy_seconds,
                is_timed=is_timed,
                rate_error=amount / busy_seconds * share_in_doubt(busy_seconds, least, most)
                if is_known
                else None,
            )
        )
    return phases


def _busy_rows(rows: FloatArray, first: int, past: int, interval: float) -> float:
    """Rows of a phase in which something moved, by their amounts; readings are `interval` rows apart."""
    ends = (int(first > 0), int(past < rows.size))  # a job's own ends may hold more than a row's time
    return float(busy_shares(np.pad(rows[first:past], ends), interval).sum())
