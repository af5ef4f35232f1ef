"""A peer group's samples on a regular grid of intervals, and the windows over it.

Only periods with data are kept, in blocks of one shift each: memory is proportional to the samples, not to
the time covered. Times are whole intervals since the epoch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import FloatArray, GroupWindow

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Grid:
    """The samples of one group: C components, B blocks of S intervals each.

    `blocks` (B,) int64 ascending: block b covers the intervals b S to (b + 1) S, counted from the epoch.
    `metrics` and `load`: arrays (C, B S) by name; NaN = missing. `interval_ns`: ns per interval.
    """

    group: str
    components: tuple[str, ...]
    interval_ns: int
    block_samples: int
    blocks: NDArray[np.int64]
    metrics: Mapping[str, FloatArray]
    load: Mapping[str, FloatArray] = field(default_factory=dict)

    def window_ends(self, window_samples: int) -> NDArray[np.int64]:
        """Ends, in intervals since the epoch, of all windows that may hold data: multiples of the shift."""
        reach = -(-window_samples // self.block_samples)
        ends = (self.blocks[:, None] + np.arange(1, reach + 1)).ravel()
        return np.unique(ends) * self.block_samples

    def window(self, end: int, window_samples: int, history: int) -> GroupWindow | None:
        """The window that ends with interval `end` (exclusive), with `history` samples before it.

        None when no metric has a sample in the window itself.
        """
        start = end - window_samples
        metrics = {name: self._between(values, start - history, end) for name, values in self.metrics.items()}
        if not any(np.isfinite(values[:, history:]).any() for values in metrics.values()):
            return None
        return GroupWindow(
            group=self.group,
            components=self.components,
            start=start * self.interval_ns / NS,
            end=end * self.interval_ns / NS,
            history=history,
            metrics=metrics,
            load={name: self._between(values, start - history, end) for name, values in self.load.items()},
        )

    def _between(self, values: FloatArray, low: int, high: int) -> FloatArray:
        """The columns of the intervals `low` to `high`, NaN where no block covers them."""
        size = self.block_samples
        first, last = low // size, (high - 1) // size
        at = int(np.searchsorted(self.blocks, first))
        stop = int(np.searchsorted(self.blocks, last, side="right"))
        samples = np.full((values.shape[0], (last - first + 1) * size), np.nan)
        for place in range(at, stop):
            to = int(self.blocks[place] - first) * size
            samples[:, to : to + size] = values[:, place * size : (place + 1) * size]
        return samples[:, low - first * size : high - first * size]


def windows_in_order(
    grids: list[Grid], window_samples: int, history: Mapping[str, int]
) -> Iterator[GroupWindow]:
    """Yields the windows of all `grids` by window end, as a running aggregator closes them.

    `history`: samples before a window, by group.
    """
    ends = [(int(end), g) for g, grid in enumerate(grids) for end in grid.window_ends(window_samples)]
    for end, g in sorted(ends):
        window = grids[g].window(end, window_samples, history[grids[g].group])
        if window is not None:
            yield window
