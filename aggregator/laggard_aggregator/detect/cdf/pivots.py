"""Whether more than half of a member's pair distances exceed its threshold: exact, from few distances.

The distance is a metric, so a pivot c settles pairs without computing them: d(x, y) <= T wherever d(x, c) +
d(y, c) <= T, and d(x, y) > T wherever |d(x, c) - d(y, c)| > T. First the median of the whole group is the
pivot, which settles nearly every member of an ordinary group. Then the difference of vector sums, another
lower bound. Then a dozen pivots, medians of slices ordered by vector sum, with every member in the cell of
its nearest one, so that counts add up over cells. Pairs still open after that are computed, cell by cell,
only between the radii that the bounds leave open, and a member is left alone as soon as its count is settled.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from laggard_aggregator.detect.cdf.distributions import BinArray, Population, median_vectors, numerators
from laggard_aggregator.detect.interface import BoolArray, FloatArray, IntArray

PIVOTS = 12
"""The most pivots of a group; smaller groups have fewer, as each costs more than it saves there."""

ALL_PAIRS_BELOW = 128
"""Groups smaller than this are compared pair by pair at once."""

_SLICE_SAMPLE = 129  # members of a slice whose median is its pivot
_BLOCK_PAIRS = 1 << 18
_LARGEST_DISTANCE = 1e6  # above any distance: there are at most 32,767 bins
_ROUNDING = 1e-6  # far above the rounding of a distance in units of one sample, far below one step


@dataclass(frozen=True, slots=True)
class Majority:
    """`far` (n,): more than half of the distances to others exceed the member's threshold.

    It holds where `decided` (n,). `to_median` (n,): distance in bins to the componentwise median of the
    members with the commonest sample count. `computed`: pair distances computed; `undecided`: pairs that the
    budget left open.
    """

    far: BoolArray
    decided: BoolArray
    to_median: FloatArray
    computed: int
    undecided: int


def far_majority(
    members: Population,
    thresholds: FloatArray,
    wanted: BoolArray,
    pair_budget: int,
    *,
    pivots: int | None = None,
    all_pairs_below: int = ALL_PAIRS_BELOW,
) -> Majority:
    """Judges the members `wanted` (n,) against `thresholds` (n,), in bins, 0 or more where wanted.

    All members count as peers. When more pairs stay open than `pair_budget`, the members that are farthest
    from the median for their threshold are judged first and those beyond the budget stay undecided.
    """
    count = _Count(members, thresholds, wanted)
    if members.size < all_pairs_below:
        return count.all_pairs()
    return count.pruned(pair_budget, pivots or min(PIVOTS, 4 + members.size // 2048))


@dataclass(frozen=True, slots=True)
class _Cell:
    """Members of one sample class around one pivot: positions within the class, by ascending radius."""

    pivot: int
    sample_class: int
    positions: IntArray
    radii: FloatArray


class _Count:
    """One window's count. Distances are in units of one sample: integers where all sample counts agree."""

    def __init__(self, members: Population, thresholds: FloatArray, wanted: BoolArray) -> None:
        self._members = members
        self._thresholds = np.where(wanted, np.minimum(thresholds, _LARGEST_DISTANCE), 0.0)
        self._unit = members.classes[0].samples
        if len(members.classes) == 1:
            self._slack = 0.0
            self._limits = _largest_numerators(self._thresholds, self._unit)
        else:
            self._slack = _ROUNDING
            self._limits = self._thresholds * self._unit
        self._far = np.zeros(members.size, dtype=np.bool_)
        self._decided = np.zeros(members.size, dtype=np.bool_)
        self._rows = np.flatnonzero(wanted)
        self._computed = 0

    def all_pairs(self) -> Majority:
        """The count from every pair of a wanted member."""
        no_radii = np.zeros((1, self._members.size))
        self._compute(list(self._cells(no_radii)), no_radii, bounded=False)
        return self._majority(self._to_median(), 0)

    def pruned(self, pair_budget: int, pivots: int) -> Majority:
        """The count from bounds, and from pairs where they leave something open."""
        to_median, undecided = self._to_median(), 0
        self._settle_by_median(to_median)
        if self._rows.size:
            levels = self._levels()
            self._settle_by_gaps(levels)
        if self._rows.size:
            radii = self._distances_to(self._pivots(levels, pivots))
            cells = list(self._cells(radii))
            undecided = self._keep_within(pair_budget, cells, radii, to_median)
            self._compute(cells, radii, bounded=True)
        return self._majority(to_median, undecided)

    def _majority(self, to_median: FloatArray, undecided: int) -> Majority:
        return Majority(self._far, self._decided, to_median / self._unit, self._computed, undecided)

    def _to_median(self) -> FloatArray:
        centre = median_vectors(self._members.classes[0].vectors, self._members.cumulative)
        distances: FloatArray = self._distances_to(centre[np.newaxis])[0]
        return distances

    def _settle(self, near: IntArray, far: IntArray) -> BoolArray:
        """Settles rows by lower bounds of their counts, `near` with the row itself. Which stay open."""
        others = self._members.size - 1
        is_far = 2 * far > others
        settled = is_far | (2 * (near - 1) >= others)
        self._far[self._rows[is_far]] = True
        self._decided[self._rows[settled]] = True
        self._rows = self._rows[~settled]
        return ~settled

    def _settle_by_median(self, to_median: FloatArray) -> None:
        """Settles rows by distances (n,) to the median, first by the radius that holds half of the group."""
        n = len(to_median)
        half = np.partition(to_median, n // 2)[n // 2]
        near = np.where(to_median[self._rows] + half + self._slack <= self._limits[self._rows], n // 2 + 1, 0)
        self._settle(near, np.zeros_like(near))
        self._settle_by_gaps(to_median)

    def _settle_by_gaps(self, positions: FloatArray) -> None:
        """Settles rows by positions (n,) that differ between two members by no more than their distance."""
        ordered = np.sort(positions)
        limits, own = self._limits[self._rows], positions[self._rows]
        far = np.searchsorted(ordered, own - limits - self._slack, side="left")
        far += len(ordered) - np.searchsorted(ordered, own + limits + self._slack, side="right")
        self._settle(np.zeros_like(far), far)

    def _distances_to(self, pivots: BinArray) -> FloatArray:
        """Distances (p, n) of all members to `pivots` (p, L), vectors of the first sample class."""
        cumulative = self._members.cumulative
        distances = np.empty((len(pivots), self._members.size))
        for c in self._members.classes:
            numerator, denominator = numerators(pivots, self._unit, c.vectors, c.samples, cumulative)
            distances[:, c.members] = numerator * self._unit / denominator
        return distances

    def _levels(self) -> FloatArray:
        """Vector sums (n,), which differ between two members by no more than their distance."""
        levels = np.empty(self._members.size)
        for c in self._members.classes:
            levels[c.members] = c.vectors.sum(axis=1) * (self._unit / c.samples)
        return levels

    def _pivots(self, levels: FloatArray, most: int) -> BinArray:
        """Pivots (p, L), `most` at most: medians of slices of the first sample class by vector sum."""
        first = self._members.classes[0]
        order = np.argsort(levels[first.members])
        count = min(most, len(order))
        sample = min(_SLICE_SAMPLE, len(order) // count)
        sampled = order[np.linspace(0, len(order) - 1, count * sample).astype(np.int64)]
        return median_vectors(first.vectors[sampled.reshape(count, sample)], self._members.cumulative)

    def _cells(self, radii: FloatArray) -> Iterator[_Cell]:
        """Every member in the cell of its nearest pivot, by distances `radii` (p, n)."""
        nearest = radii.argmin(axis=0)
        for number, c in enumerate(self._members.classes):
            own = nearest[c.members]
            distance = radii[own, c.members]
            order = np.argsort(distance)
            order = order[np.argsort(own[order].astype(np.int16), kind="stable")]
            edges = np.searchsorted(own[order], np.arange(len(radii) + 1))
            for pivot, (start, stop) in enumerate(pairwise(edges.tolist())):
                if stop > start:
                    inside = order[start:stop]
                    yield _Cell(pivot, number, inside, distance[inside])

    def _bounds(self, cells: list[_Cell], radii: FloatArray, *, bounded: bool) -> IntArray:
        """For all rows in all cells, by the triangle inequality where `bounded`; (3, r, cells).

        Members surely near, and the span of positions that is open; all others are far.
        """
        limits = self._limits[self._rows]
        bounds = np.zeros((3, self._rows.size, len(cells)), dtype=np.int64)
        for g, cell in enumerate(cells):
            if not bounded:
                bounds[2, :, g] = len(cell.positions)
                continue
            own = radii[cell.pivot, self._rows]
            near = np.searchsorted(cell.radii, limits - own - self._slack, side="right")
            start = np.maximum(near, np.searchsorted(cell.radii, own - limits - self._slack, side="left"))
            stop = np.searchsorted(cell.radii, own + limits + self._slack, side="right")
            bounds[:, :, g] = near, start, np.maximum(start, stop)
        return bounds

    def _keep_within(
        self, pair_budget: int, cells: list[_Cell], radii: FloatArray, to_median: FloatArray
    ) -> int:
        """Settles pairs by the cells' bounds and drops rows beyond the budget. The pairs given up."""
        near, start, stop = self._bounds(cells, radii, bounded=True)
        open_pairs = (stop - start).sum(axis=1)
        far = self._members.size - (near + stop - start).sum(axis=1)
        open_pairs = open_pairs[self._settle(near.sum(axis=1), far)]
        if open_pairs.sum() <= pair_budget:
            return 0
        urgency = to_median[self._rows] / np.maximum(self._limits[self._rows], 1.0)
        order = np.argsort(-urgency, kind="stable")
        first_out = order[np.searchsorted(np.cumsum(open_pairs[order]), pair_budget, side="right")]
        kept = urgency > urgency[first_out]  # equals share their fate, in whatever order they came
        self._rows = self._rows[kept]
        return int(open_pairs[~kept].sum())

    def _compute(self, cells: list[_Cell], radii: FloatArray, bounded: bool) -> None:
        """Computes the open pairs, the cell with most open pairs first, until every row is settled."""
        near, start, stop = self._bounds(cells, radii, bounded=bounded)
        open_ = stop - start
        for g in np.argsort(-open_.sum(axis=0), kind="stable").tolist():
            todo = np.flatnonzero(open_[:, g])
            near[todo, g] = self._near(
                cells[g], self._rows[todo], near[todo, g], start[todo, g], stop[todo, g]
            )
            open_[:, g] = 0
            far = self._members.size - (near + open_).sum(axis=1)
            left = self._settle(near.sum(axis=1), far)
            near, open_, start, stop = near[left], open_[left], start[left], stop[left]

    def _near(self, cell: _Cell, rows: IntArray, near: IntArray, start: IntArray, stop: IntArray) -> IntArray:
        """How many members of the cell are near each row, by computing positions `start` to `stop`."""
        counts = np.empty(len(rows), dtype=np.int64)
        columns = self._members.classes[cell.sample_class]
        vectors = columns.vectors[cell.positions]
        for c in self._members.classes:
            where = np.searchsorted(c.members, rows)
            inside = c.members[np.minimum(where, len(c.members) - 1)] == rows
            mine = np.flatnonzero(inside)
            mine = mine[np.lexsort((stop[mine], start[mine]))]
            block = max(1, _BLOCK_PAIRS // len(vectors))
            for at in range(0, len(mine), block):
                some = mine[at : at + block]
                low, high = int(start[some].min()), int(stop[some].max())
                numerator, denominator = numerators(
                    c.vectors[where[some]],
                    c.samples,
                    vectors[low:high],
                    columns.samples,
                    self._members.cumulative,
                )
                numerator /= denominator
                within = numerator <= self._thresholds[rows[some], np.newaxis]
                # Before `low` all are near (then `near` reaches at least that far) or all are far.
                counts[some] = np.count_nonzero(within, axis=1) + np.minimum(near[some], low)
                self._computed += numerator.size
        return counts


def _largest_numerators(thresholds: FloatArray, samples: int) -> FloatArray:
    """For each threshold (n,) the largest integer whose rounded quotient by `samples` does not exceed it."""
    k = np.floor(thresholds * samples)
    k += (k + 1) / samples <= thresholds
    k -= k / samples > thresholds
    return k
