"""Puts rows of any order and time on a regular grid: one value per component and interval."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.offline.sample_grid import Grid

ONE_A_SAMPLE = 0.7
"""Concentration of the times' phases above which samples count as one per interval, with jitter."""
PART_ROWS = 200_000
"""Rows regridded together: temporaries are as large as these, not as the file."""


@dataclass(frozen=True, slots=True)
class Rows:
    """N samples of one group, in any order.

    `component` (N,) int32: positions in `components`. `time_ns` (N,) int64. `metrics` and `load` (N,) float64
    by name; non-finite values are missing. `weight`: load by which metrics are averaged, or None.
    """

    group: str
    components: tuple[str, ...]
    component: NDArray[np.int32]
    time_ns: NDArray[np.int64]
    metrics: Mapping[str, FloatArray]
    load: Mapping[str, FloatArray]
    weight: str | None

    def part(self, group: str, rows: NDArray[np.intp]) -> "Rows":
        """The samples at `rows` as a group of their own, with the components that they are of."""
        known, component = np.unique(self.component[rows], return_inverse=True)
        return Rows(
            group=group,
            components=tuple(self.components[place] for place in known),
            component=component.astype(np.int32),
            time_ns=self.time_ns[rows],
            metrics={name: values[rows] for name, values in self.metrics.items()},
            load={name: values[rows] for name, values in self.load.items()},
            weight=self.weight,
        )


def binned(rows: Rows, interval_ns: int, block_samples: int) -> Grid:
    """The grid of `rows`.

    Of rows with the same component and time the last one counts. Rows of one interval are averaged: metrics
    by `weight` (evenly where all weights are 0 or missing), loads evenly. A sample belongs to the interval
    ((k - 1) D, k D] that contains its time, as in the aggregator. Where samples arrive once per interval at a
    steady phase, intervals are shifted to centre that phase, so that jitter does not put two samples in one
    interval and none in the next.
    """
    order, ends = _without_repeats(rows.component, rows.time_ns, len(rows.components))
    shift = _shift(rows.time_ns, order, interval_ns)
    parts = list(_parts(ends))

    def index(part: _Slab) -> NDArray[np.int64]:
        at: NDArray[np.int64] = (rows.time_ns[order[part.rows]] + shift - 1) // interval_ns
        return at

    of_parts = [np.unique(index(part) // block_samples) for part in parts]
    blocks = np.unique(np.concatenate(of_parts)) if of_parts else np.zeros(0, np.int64)
    width = blocks.size * block_samples

    def cells(part: _Slab) -> NDArray[np.int64]:
        """Cell of each row among those of the part's components."""
        at = index(part)
        block = np.searchsorted(blocks, at // block_samples)
        component = rows.component[order[part.rows]].astype(np.int64) - part.components.start
        numbers: NDArray[np.int64] = component * width + block * block_samples + at % block_samples
        return numbers

    alone = all(np.unique(numbers).size == numbers.size for numbers in map(cells, parts))

    def grid(column: FloatArray, weight: FloatArray | None = None) -> FloatArray:
        samples = np.full((len(rows.components), width), np.nan)
        for part in parts:
            at, keep = cells(part), order[part.rows]
            values, cell = column[keep], samples[part.components].reshape(-1)
            if alone:
                cell[at] = np.where(np.isfinite(values), values, np.nan)
            else:
                cell[:] = _averages(values, None if weight is None else weight[keep], at, cell.size)
        return samples

    weight = rows.load[rows.weight] if rows.weight else None
    return Grid(
        group=rows.group,
        components=rows.components,
        interval_ns=interval_ns,
        block_samples=block_samples,
        blocks=blocks,
        metrics={name: grid(values, weight) for name, values in rows.metrics.items()},
        load={name: grid(values) for name, values in rows.load.items()},
    )


@dataclass(frozen=True, slots=True)
class _Slab:
    """Consecutive components, and the places of their rows in the order of all rows."""

    components: slice
    rows: slice


def _parts(ends: NDArray[np.int64]) -> Iterator[_Slab]:
    """All components with their rows, in parts of about PART_ROWS rows. `ends` (C,): of each one's rows."""
    first, low = 0, 0
    while first < ends.size:
        last = max(int(np.searchsorted(ends, low + PART_ROWS, side="right")), first + 1)
        yield _Slab(slice(first, last), slice(low, int(ends[last - 1])))
        first, low = last, int(ends[last - 1])


def _without_repeats(
    component: NDArray[np.int32], times: NDArray[np.int64], components: int
) -> tuple[NDArray[np.integer[Any]], NDArray[np.int64]]:
    """Positions by component and time, of each pair the last; and the ends (C,) of each component's."""
    ends = np.cumsum(np.bincount(component, minlength=components))
    order = _by_component(component, ends)
    kept = np.zeros(components, np.int64)
    size = 0
    for part in _parts(ends):
        rows = order[part.rows]
        rows = rows[np.lexsort((times[rows], component[rows]))]
        again = (np.diff(component[rows]) == 0) & (np.diff(times[rows]) == 0)
        rows = rows[~np.append(again, False)] if rows.size else rows
        order[size : size + rows.size] = rows
        size += rows.size
        kept[part.components] = np.bincount(component[rows], minlength=part.components.stop)[part.components]
    return order[:size], np.cumsum(kept)


def _by_component(component: NDArray[np.int32], ends: NDArray[np.int64]) -> NDArray[np.integer[Any]]:
    """Positions ordered by component; a sort by counting, since argsort takes 16 bytes a row more."""
    order: NDArray[np.integer[Any]] = np.empty(
        component.size, np.int32 if component.size < 1 << 31 else np.int64
    )
    free = np.concatenate([[0], ends[:-1]])
    for low in range(0, component.size, PART_ROWS):
        some = component[low : low + PART_ROWS]
        local = np.argsort(some, kind="stable")
        counts = np.bincount(some, minlength=ends.size)
        rank = np.arange(some.size) - (np.cumsum(counts) - counts)[some[local]]
        order[free[some[local]] + rank] = local + low
        free += counts
    return order


def _shift(times: NDArray[np.int64], order: NDArray[np.integer[Any]], interval_ns: int) -> int:
    """Offset that centres the common phase of the times at `order`, if they have one, in an interval."""
    total = 0.0 + 0.0j
    for low in range(0, order.size, PART_ROWS):
        some = times[order[low : low + PART_ROWS]]
        total += np.exp(2j * np.pi * (some % interval_ns) / interval_ns).sum()
    mean = total / max(order.size, 1)
    if abs(mean) < ONE_A_SAMPLE:
        return 0
    turn = float(np.angle(mean)) / (2 * np.pi)  # -0.5 to 0.5
    # Up to 1.25: what jitters around the end of an interval stays in it.
    turn = turn + 1 if turn <= 0.25 else turn
    return round((0.5 - turn) * interval_ns)


def _averages(
    values: FloatArray, weights: FloatArray | None, cells: NDArray[np.int64], size: int
) -> FloatArray:
    """The mean of the finite values of each cell (size,), NaN where there are none."""
    known = np.isfinite(values)
    cells, values = cells[known], values[known]
    with np.errstate(invalid="ignore", divide="ignore"):
        even: FloatArray = np.bincount(cells, values, size) / np.bincount(cells, minlength=size)
        if weights is None:
            return even
        weight = np.where(np.isfinite(weights[known]) & (weights[known] > 0), weights[known], 0.0)
        total = np.bincount(cells, weight, size)
        by_weight = np.bincount(cells, weight * values, size) / total
    return np.where(total > 0, by_weight, even)
