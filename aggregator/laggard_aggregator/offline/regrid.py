"""Puts rows of any order and time on a regular grid: one value per component and interval."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.offline.sample_grid import Grid

ONE_A_SAMPLE = 0.7
"""Concentration of the times' phases above which samples count as one per interval, with jitter."""


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


def binned(rows: Rows, interval_ns: int, block_samples: int) -> Grid:
    """The grid of `rows`.

    Of rows with the same component and time the last one counts. Rows of one interval are averaged: metrics
    by `weight` (evenly where all weights are 0 or missing), loads evenly. A sample belongs to the interval
    ((k - 1) D, k D] that contains its time, as in the aggregator. Where samples arrive once per interval at a
    steady phase, intervals are shifted to centre that phase, so that jitter does not put two samples in one
    interval and none in the next.
    """
    keep = _without_repeats(rows.component, rows.time_ns)
    component, times = rows.component[keep], rows.time_ns[keep]
    index = (times + _shift(times, interval_ns) - 1) // interval_ns
    blocks, place = np.unique(index // block_samples, return_inverse=True)
    width = blocks.size * block_samples
    cells = component.astype(np.int64) * width + place * block_samples + index % block_samples
    size = len(rows.components) * width
    alone = bool(np.bincount(cells, minlength=size).max(initial=0) <= 1)
    weights = rows.load[rows.weight][keep] if rows.weight else None

    def grid(values: FloatArray, weights: FloatArray | None = None) -> FloatArray:
        if alone:
            cell = np.full(size, np.nan)
            cell[cells] = np.where(np.isfinite(values), values, np.nan)
        else:
            cell = _averages(values, weights, cells, size)
        return cell.reshape(len(rows.components), width)

    return Grid(
        group=rows.group,
        components=rows.components,
        interval_ns=interval_ns,
        block_samples=block_samples,
        blocks=blocks,
        metrics={name: grid(values[keep], weights) for name, values in rows.metrics.items()},
        load={name: grid(values[keep]) for name, values in rows.load.items()},
    )


def _without_repeats(component: NDArray[np.int32], times: NDArray[np.int64]) -> NDArray[np.intp]:
    """Positions ordered by component and time, the last of each pair."""
    order = np.lexsort((times, component))
    again = (np.diff(component[order]) == 0) & (np.diff(times[order]) == 0)
    return order[~np.append(again, False)] if order.size else order


def _shift(times: NDArray[np.int64], interval_ns: int) -> int:
    """Offset that centres the times' common phase, if they have one, in an interval."""
    phases = np.exp(2j * np.pi * (times % interval_ns) / interval_ns)
    mean = phases.mean() if times.size else 0.0
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
