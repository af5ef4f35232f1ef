"""The load curve: by how much longer requests take at each demand on a component, as the members show it.

Demand is cut into cells of half an octave. A pooled curve, with the group's own ups and downs taken out,
gives the group's level at each tick. A component is held against the median of the *other* members'
levels in its cell, leaning on the pooled curve: no member bends its own expectation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from laggard_aggregator.detect.interface import MIN_PEERS, BoolArray, FloatArray
from laggard_aggregator.detect.laggard.component_arrays import ComponentArrays
from laggard_aggregator.detect.peers import leave_one_out_median

CELLS_AN_OCTAVE = 2
LOG_CELL = float(np.log(2.0)) / CELLS_AN_OCTAVE
"""Log of the load from one cell to the next."""
CELLS = 32
FIRST_CELL = 12
"""Cell of the median demand in a group's first window: six octaves below, ten above."""
MIN_SAMPLES, SURE_SAMPLES = 1.0, 10.0
"""Samples from which a member tells a level of its cell, and from which it shows that the cell is known."""
MIN_OTHERS = MIN_PEERS - 1
"""Other members that must have been seen at a load for it to be known: a group less one."""
MIN_OWN_SAMPLES = 60.0
"""A member's own samples from which it has shown how long its requests take at a load."""
MAX_UTILISATION = 0.95
"""Upper limit of the utilisation that the highest known load stands for."""
MAX_UNSEEN_LOG_RATIO = float(np.log(5.0))
"""Log of the most that queueing at an unknown load may explain."""
BUSY_LOG_RATIO = float(np.log(1.2))
"""Beyond 1.2 times the load that is known, latency may grow in proportion."""
MAX_UNKNOWN_LOG_RATIO = float(np.log(2.5))
"""Log of the most that such growth may explain: a hog's load does not excuse every latency."""
STEEPEST = 2.5
"""Power of its load over the middle of the others', up to which a component's own times may differ from
theirs where these were never seen at one load: 1.4 in an M/M/1 queue from 0.2 to 0.9 of its capacity."""
STEEPEST_SHARE = 5.0
"""The same in multiples of the range of the others' levels: where these are alike, load moves no times."""
COMMON_WEIGHT = 1.0
"""Weight, in members, of the level a group usually has against the one its other members have at a tick."""
MAX_TEACHING_LOG = 1.0
"""Limit of the log ratios from which the pooled curve learns."""
CURVE_LOG_RATIO = 0.08
"""How far load is expected to move latencies: the noise of one sample over this, squared, is the number of
samples after which the members' own levels weigh more than that expectation."""
FLATNESS = 1.0
"""Weight, in samples, of the belief that neighbouring cells are alike."""

_STEP = np.diff(np.eye(CELLS), axis=0)
_BEND = np.diff(np.eye(CELLS), 2, axis=0)


@dataclass(frozen=True, slots=True)
class OwnTimes:
    """The loads at which each component has shown its times, and these there; (C, CELLS), NaN where none.

    `point`: in cells. `level`: logs over the group's level.
    """

    point: FloatArray
    level: FloatArray


@dataclass(frozen=True, slots=True)
class Unseen:
    """Of times at loads at which too few others were seen; (C, T).

    `usual`: the log by which a component's own times usually exceed the others' there. `doubt`: the log by
    which they may be longer yet. `left`: the log by which its own exceed that, for no reason that load gives;
    infinite where the component has not shown its times at that load.
    """

    usual: FloatArray
    doubt: FloatArray
    left: FloatArray


@dataclass(frozen=True, slots=True)
class OthersCurve:
    """The curves that components are held against, (C, CELLS): `level` at `point`; and where they end.

    `known` (C,): whether any point is. `begin`, `end` (C,): the lowest and the highest known; where the
    others never met at one load, the middle of theirs; else NaN. `utilisation` (C,): of a component at the
    end. `span` (C,): log from the least to the largest mean time of the others. `closed_loop`: the load is a
    number of requests in flight.
    """

    point: FloatArray
    level: FloatArray
    known: BoolArray
    begin: FloatArray
    end: FloatArray
    utilisation: FloatArray
    span: FloatArray
    closed_loop: bool

    def at(self, position: FloatArray) -> FloatArray:
        """The level at `position` (C, T), 0 where that is NaN."""
        known = np.isfinite(position)
        where = np.where(known, position, 0.0)
        near = np.rint(where).astype(np.intp)
        low = np.clip(near - (where < np.take_along_axis(self.point, near, 1)), 0, CELLS - 2)
        start, end = (np.take_along_axis(self.point, cell, 1) for cell in (low, low + 1))
        left, right = (np.take_along_axis(self.level, cell, 1) for cell in (low, low + 1))
        # A line of the rate of a server, one over the time, over the demand on it: an M/M/1 queue's is one.
        slow, fast = np.exp(-left), np.exp(-right)
        rate = slow + np.clip(_part(where, start, end), 0.0, 1.0) * (fast - slow)
        level: FloatArray = np.where(known, -np.log(rate), 0.0)
        return level

    def unseen(self, position: FloatArray, own: OwnTimes) -> Unseen:
        """How a component's own past and queueing tell times at `position` (C, T), where others' do not.

        Beyond the loads of others, its own highest load excuses no more than its requests took longer there
        before. Where no load of others is known its own times are the reference, as far as load may move
        them.
        """
        known, shown, cells = self.known[:, None], np.isfinite(own.point), np.arange(CELLS)
        ahead, growth = own.level - self.at(own.point), self._growth(own.point)
        apart = np.nan_to_num(np.abs(own.point - self.end[:, None]))
        steep = np.minimum(STEEPEST * LOG_CELL * apart, STEEPEST_SHARE * self.span[:, None])
        most = np.where(known, growth, steep)
        usual, left = np.clip(ahead, -most, most), np.maximum(ahead - most, 0.0)
        cell = np.rint(np.nan_to_num(position)).astype(np.intp)
        below = np.maximum.accumulate(np.where(shown, cells, -1), axis=1)
        here = np.take_along_axis(below, cell, 1)
        at = here if self.closed_loop else np.where(known, below[:, -1:], here)
        some, at = (at >= 0) & np.isfinite(position), np.maximum(at, 0)
        usual, before = (np.where(some, np.take_along_axis(values, at, 1), 0.0) for values in (usual, growth))
        now = self._growth(position)
        if self.closed_loop:
            point = np.where(some, np.take_along_axis(own.point, at, 1), np.nan)
            usual, doubt = self._in_flight(position, now, point, usual)
        else:
            doubt = np.maximum(now - before, 0.0)
            doubt = np.where(known, np.minimum(now, np.maximum(usual, 0.0) + doubt), doubt)
            usual = np.where(known, 0.0, usual)
        return Unseen(
            usual=usual,
            doubt=doubt,
            left=np.take_along_axis(np.where(shown, left, np.inf), cell, 1),
        )

    def _in_flight(
        self, position: FloatArray, growth: FloatArray, point: FloatArray, usual: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """By how much times usually differ from the others' at `position` (C, T), and the doubt; logs.

        `growth` (C, T): as of `_growth`. `point`, `usual` (C, T): where a component's own times are known for
        as many in flight or fewer, NaN where nowhere, and how they differ there. Unlike rates of requests,
        numbers in flight come again: its own past tells its times, and no other is held against them.
        """
        known = self.known[:, None]
        across = (point < self.begin[:, None]) & (position > self.end[:, None])
        near = np.where(across, 0.0, np.clip(usual, -growth, growth))
        usual = np.where(known, near, usual)
        more = np.where(np.isfinite(point), LOG_CELL * np.maximum(position - point, 0.0), growth)
        return usual, np.where(known, np.clip(growth - usual, 0.0, more), more)

    def _growth(self, position: FloatArray) -> FloatArray:
        """The log by which latencies may grow from the known loads to `position` (C, T), 0 where that is NaN.

        As in an M/M/1 queue, where they take 1 / (1 - utilisation) times as long, and as `unseen_growth` at
        least. In a closed loop in proportion at most: more requests in flight do not lessen a device's rate.
        There it is the log by which they may shrink, too, where fewer are in flight than known.
        """
        beyond = np.nan_to_num(np.maximum(position - self.end[:, None], 0.0))
        octaves = beyond / CELLS_AN_OCTAVE
        if self.closed_loop:
            short = np.nan_to_num(np.maximum(self.begin[:, None] - position, 0.0))
            return np.asarray(LOG_CELL * np.maximum(beyond, short))
        idle = np.maximum(1.0 - self.utilisation[:, None] * 2.0**octaves, 1e-9)
        queueing = np.minimum(np.log((1.0 - self.utilisation[:, None]) / idle), MAX_UNSEEN_LOG_RATIO)
        most: FloatArray = np.maximum(queueing, unseen_growth(octaves * np.log(2.0)))
        return most


def unseen_growth(more: FloatArray) -> FloatArray:
    """The log by which latencies may grow, though nobody saw them grow, with the log of `more` load."""
    grown: FloatArray = np.clip(more - BUSY_LOG_RATIO, 0.0, MAX_UNKNOWN_LOG_RATIO)
    return grown


def seen_by_others(samples: FloatArray, least: float, others_needed: int = MIN_OTHERS) -> BoolArray:
    """Where enough other members have `least` samples; as `samples` (C, cells)."""
    here = samples >= least
    others = np.asarray(here.sum(axis=0)[None, :] - here)
    enough: BoolArray = others >= others_needed
    return enough


class LoadCurve(ComponentArrays):
    """The curve of one group.

    `total`, `place`, `samples` (CELLS, N): each member's sums of log ratios and of positions, and samples,
    in each cell. `pairs` (CELLS, CELLS), `sums` (CELLS,): normal equations of the pooled curve. `pooled`
    (CELLS,): that curve. `origin`: log2 of the demand at FIRST_CELL, None before there is one. `prior`:
    samples that the expectation of a flat curve is worth.
    """

    SHAPES: ClassVar[Mapping[str, tuple[int, ...]]] = {
        "total": (CELLS,),
        "place": (CELLS,),
        "samples": (CELLS,),
    }
    total: FloatArray
    place: FloatArray
    samples: FloatArray

    def __init__(self) -> None:
        super().__init__()
        self.pairs: FloatArray = np.zeros((CELLS, CELLS))
        self.sums: FloatArray = np.zeros(CELLS)
        self.pooled: FloatArray = np.zeros(CELLS)
        self.origin: float | None = None
        self.prior = 0.0

    def position(self, demand: FloatArray) -> FloatArray:
        """Where logs of demands (C, T) lie, in cells; NaN where unknown."""
        octaves: FloatArray = demand / np.log(2.0)
        if self.origin is None:
            known = octaves[np.isfinite(octaves)]
            if not known.size:
                return octaves
            self.origin = float(np.median(known))
        cells = (octaves - self.origin) * CELLS_AN_OCTAVE + FIRST_CELL
        return np.asarray(np.clip(cells, 0.0, CELLS - 1.0), dtype=np.float64)

    def pooled_at(self, position: FloatArray) -> FloatArray:
        """The pooled curve at `position` (C, T), 0 where that is NaN."""
        return _between(position, self.pooled)

    def growth_at(self, position: FloatArray) -> FloatArray:
        """By how much longer requests take at `position` (C, T) than at the least load, 0 where that is NaN.

        By the pooled curve, as far as all higher loads show as much: a queue's times do not fall with load.
        """
        lasting = np.minimum.accumulate(self.pooled[::-1])[::-1]
        return _between(position, lasting - lasting[0])

    def learn_pooled(self, position: FloatArray, ratio: FloatArray, level: FloatArray, kept: float) -> None:
        """Learns the pooled curve from `ratio` (C, T), log times over the group's usual level.

        `level` (T,): the group's at each tick. The level of a tick is eliminated as a random effect: it is
        the mean of its members' times beyond the curve, leaning on the usual one by COMMON_WEIGHT.
        """
        expected = self.pooled_at(position) + level[None, :]
        known = np.isfinite(ratio) & np.isfinite(position) & np.isfinite(expected)
        value = np.clip(ratio - expected, -MAX_TEACHING_LOG, MAX_TEACHING_LOG)[known] + expected[known]
        ticks = ratio.shape[1]
        tick = np.broadcast_to(np.arange(ticks)[None, :], ratio.shape)[known]
        low = np.minimum(position[known].astype(np.intp), CELLS - 2)
        upper = position[known] - low
        lower = 1.0 - upper

        def by_cell(below: FloatArray, above: FloatArray) -> FloatArray:
            """Sums by cell and tick, (CELLS, T)."""
            size = CELLS * ticks
            first = np.bincount(low * ticks + tick, below, size).astype(np.float64)
            second = np.bincount((low + 1) * ticks + tick, above, size).astype(np.float64)
            return (first + second).reshape(CELLS, ticks)

        members, sums = by_cell(lower, upper), by_cell(lower * value, upper * value)
        share = members / (members.sum(axis=0) + COMMON_WEIGHT)
        square = np.bincount(low, lower**2, CELLS) + np.bincount(low + 1, upper**2, CELLS)
        beside = np.bincount(low, lower * upper, CELLS)[:-1]
        own = np.diag(square) + np.diag(beside, 1) + np.diag(beside, -1)
        self.pairs = np.asarray(kept * self.pairs + own - share @ members.T, dtype=np.float64)
        learned: FloatArray = np.asarray(sums.sum(axis=1) - share @ sums.sum(axis=0), dtype=np.float64)
        self.sums = kept * self.sums + learned
        prior = FLATNESS * _STEP.T @ _STEP + self.prior * _BEND.T @ _BEND + 1e-3 * np.eye(CELLS)
        self.pooled = np.asarray(np.linalg.solve(self.pairs + prior, self.sums), dtype=np.float64)

    def learn(self, components: Sequence[str], position: FloatArray, ratio: FloatArray, kept: float) -> None:
        """Learns the members' own levels from `ratio` (C, T), log times over the group's level at each
        tick.
        """
        at = self.places(components)
        known = np.isfinite(ratio) & np.isfinite(position)
        row = np.broadcast_to(np.arange(at.size)[:, None], ratio.shape)[known]
        flat, size = row * CELLS + np.rint(position[known]).astype(np.intp), at.size * CELLS
        for sums, new in ((self.total, ratio), (self.place, position), (self.samples, np.ones_like(ratio))):
            sums[:, at] = kept * sums[:, at] + np.bincount(flat, new[known], size).reshape(-1, CELLS).T

    def of_others(self, components: Sequence[str], slope: float, *, closed_loop: bool) -> OthersCurve:
        """The curve that each of `components` is held against.

        `slope`: of latency over load, in logs, beyond the curve's own. `closed_loop` as in OthersCurve.
        """
        at = self.places(components)
        samples = self.samples[:, at].T
        # Members seldom meet at a number in flight: there more than half of the others suffice.
        needed = min((at.size - 1) // 2 + 1, MIN_OTHERS) if closed_loop else MIN_OTHERS
        seen, sure = (seen_by_others(samples, least, needed) for least in (MIN_SAMPLES, SURE_SAMPLES))
        counted = np.where(samples >= MIN_SAMPLES, samples, np.nan)
        own = (self.total[:, at].T + self.prior * self.pooled) / (counted + self.prior)
        everyone = np.ones(at.size, dtype=np.bool_)
        level = leave_one_out_median(own, everyone)
        point = leave_one_out_median(self.place[:, at].T / counted, everyone)
        cells = np.arange(CELLS)
        below = np.maximum.accumulate(np.where(seen, cells, -1), axis=1)
        above = np.minimum.accumulate(np.where(seen, cells, CELLS)[:, ::-1], axis=1)[:, ::-1]
        low = np.where(below >= 0, below, np.minimum(above, CELLS - 1))
        high = np.where(above < CELLS, above, low)
        # Between known cells a line; flat beyond them.
        (left, right), (start, end) = (
            [np.take_along_axis(array, cell, 1) for cell in (low, high)] for array in (level, point)
        )
        point = np.where(seen, point, cells)
        part = np.divide(point - start, end - start, out=np.zeros_like(point), where=end > start)
        level = np.where(
            np.asarray(seen.any(axis=1))[:, None], left + np.clip(part, 0.0, 1.0) * (right - left), 0.0
        )
        total = samples.sum(axis=1)
        load = self.place[:, at].sum(axis=0) / np.where(total > 0.0, total, np.nan)
        apart = ~np.asarray(seen.any(axis=1))
        middle = np.where(apart, leave_one_out_median(load[:, None], everyone)[:, 0], np.nan)
        point, level, edge = _to_edge(point, level, seen)
        end, utilisation = _upper_end(point, level, sure, slope, edge)
        known = np.isfinite(end)
        mean = self.total[:, at].sum(axis=0) / np.where(total > 0.0, total, np.nan)
        span = _largest_of_others(mean) + _largest_of_others(-mean)
        begin = np.where(known, point[np.arange(at.size), sure.argmax(axis=1)], middle)
        end = np.where(known, end, middle)
        return OthersCurve(point, level, known, begin, end, utilisation, span, closed_loop)

    def own_times(self, components: Sequence[str]) -> OwnTimes:
        """The times that each of `components` has shown."""
        at = self.places(components)
        samples = self.samples[:, at].T
        shown = np.where(samples >= MIN_OWN_SAMPLES, samples, np.nan)
        return OwnTimes(self.place[:, at].T / shown, self.total[:, at].T / shown)

    def state(self) -> dict[str, Any]:
        """Plain data from which `restored` goes on exactly."""
        pooled = {name: getattr(self, name).tolist() for name in ("pairs", "sums", "pooled")}
        return {**super().state(), **pooled, "origin": self.origin, "prior": self.prior}

    def restored(self, state: Mapping[str, Any]) -> Self:
        """Itself, going on from `state`. Raises ValueError, TypeError or KeyError on any other."""
        for name, shape in (("pairs", (CELLS, CELLS)), ("sums", CELLS), ("pooled", CELLS)):
            setattr(self, name, np.array(state[name], dtype=np.float64).reshape(shape))
        self.origin = None if state["origin"] is None else float(state["origin"])
        self.prior = float(state["prior"])
        return super().restored(state)


def _between(position: FloatArray, by_cell: FloatArray) -> FloatArray:
    """`by_cell` (CELLS,) at `position` (C, T), on a line between cells; 0 where that is NaN."""
    known = np.isfinite(position)
    level: FloatArray = np.where(
        known, np.interp(np.where(known, position, 0.0), np.arange(CELLS), by_cell), 0.0
    )
    return level


def _largest_of_others(values: FloatArray) -> FloatArray:
    """For each of `values` (C,) the largest of the others, those that are NaN left out; 0 without one."""
    finite = np.where(np.isfinite(values), values, -np.inf)
    first = np.arange(finite.size) == finite.argmax()
    largest = np.where(first, np.max(finite, initial=-np.inf, where=~first), finite.max())
    return np.where(np.isfinite(largest), largest, 0.0)


def _part(where: FloatArray, start: FloatArray, end: FloatArray) -> FloatArray:
    """How far the demand `where` is from `start` to `end`, 0 to 1 between them; in cells, of one shape."""
    here, first, last = (2.0 ** (cells / CELLS_AN_OCTAVE) for cells in (where, start, end))
    return np.asarray((here - first) / np.maximum(last - first, 1e-6))


def _to_edge(
    point: FloatArray, level: FloatArray, seen: BoolArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The curve goes on to the upper edge of its highest cell `seen`, growing as between its last two points.

    Returns `point` and `level` with that, and the edge (C,), NaN where there are no two points.
    """
    row, cells = np.arange(len(point)), np.arange(CELLS)
    below = np.maximum.accumulate(np.where(seen, cells, -1), axis=1)
    last = np.clip(below[:, -1], 1, CELLS - 2)
    before, edge = below[row, last - 1], last + 0.5
    told = (below[:, -1] == last) & (before >= 0)
    (start, end), (left, right) = ([cells[row, cell] for cell in (before, last)] for cells in (point, level))
    slow, fast = np.exp(-left), np.exp(-right)
    rate = fast + np.minimum(_part(edge, start, end) - 1.0, 1.0) * np.minimum(fast - slow, 0.0)
    grown = -np.log(np.maximum(rate, (1.0 - MAX_UTILISATION) * slow))
    beyond = told[:, None] & (cells > last[:, None])
    point = np.where(beyond & (cells == last[:, None] + 1), edge[:, None], point)
    return point, np.where(beyond, grown[:, None], level), np.where(told, edge, np.nan)


def _upper_end(
    point: FloatArray, level: FloatArray, sure: BoolArray, more: float, edge: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The highest place known, NaN where none is, and the utilisation there; (C,).

    `edge` (C,): the place to which the curve goes; known where the cell before it is.

    In an M/M/1 queue the slope of latency over load, in logs, is u / (1 - u). The curve's is that of the
    middle between its last two points; `more` is added to it.
    """
    row, cells = np.arange(len(point)), np.arange(CELLS)
    known = np.maximum.accumulate(np.where(sure, cells, -1), axis=1)
    last = np.maximum(known[:, -1], 0)
    before = np.where(last > 0, known[row, last - 1], -1)
    octaves = (point[row, last] - point[row, np.maximum(before, 0)]) / CELLS_AN_OCTAVE
    told = (before >= 0) & (octaves > 0.0)
    rise = np.maximum(level[row, last] - level[row, np.maximum(before, 0)], 0.0)
    slope = np.divide(rise, octaves * np.log(2.0), out=np.zeros_like(rise), where=told)
    middle = np.where(slope > 0.0, octaves / 2.0, 0.0)
    end = np.where(edge == last + 0.5, edge, point[row, last])
    middle += (end - point[row, last]) / CELLS_AN_OCTAVE
    utilisation = (slope + more) / (1.0 + slope + more) * 2.0**middle
    end = np.where(known[:, -1] >= 0, end, np.nan)
    return end, np.minimum(utilisation, MAX_UTILISATION)
