"""Expected time of a request: what its kind and the component's load explain, as the group's members show it.

Two parts, both learned from all members at all times. The *service demand* of a mean request, whose time adds up
from reads, writes and their bytes (non-negative least squares); and the *load curve*: by how much longer requests
take at each demand on a component, whose level in a cell of demand is the median of the *other* members' in it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import BoolArray, FloatArray
from laggard_aggregator.detect.laggard.columns import Columns
from laggard_aggregator.detect.peers import leave_one_out_median, row_median

MEMORY_SECONDS = 3 * 86400.0
"""Time over which load is remembered: what happens each night is known in the next."""
MIN_MEMORY_WINDOWS = 32.0
CELLS_AN_OCTAVE = 2
CELLS = 32
FIRST_CELL = 12
"""Cell of the first window's median demand."""
MIN_CELL_SAMPLES = 5.0
"""Samples behind a member's level in a cell, or in a kind of request, from which it counts as seen there."""
MIN_SEEN = 3
"""Other members that must have been seen at a load for it to be known."""
KINDS_OF_REQUEST = 4
KIND_BYTES = 65536.0
HALF_CAPACITY = 0.5
"""Utilisation that the highest load seen is taken to be where nothing else is known."""
MAX_UNSEEN_LOG_RATIO = float(np.log(5.0))
SIZE_CELLS = 16
"""Octaves of request sizes from 512 bytes on."""
SHARE_CELLS = 4
UNSEEN_SHARE_LOG_RATIO = float(np.log(8.0))
MIN_MEMBER_LOG = 0.05
SWEEPS = 8
REWEIGHTS = 3
PRIOR_MEMBERS = 0.05
KAPPA = 1.0
SMOOTH = 1.0
CLIP = 1.0

_TRIANGLE = np.triu_indices(KINDS_OF_REQUEST)


class Expected(NamedTuple):
    """`log_time` (C, T): log of the expected time over the group's level; 0 where nothing explains it.

    `doubt` (C, T): log by which a component may be slower for a load at which too few others were seen.
    """

    log_time: FloatArray
    doubt: FloatArray


def request_kinds(load: Mapping[str, FloatArray], shape: tuple[int, int]) -> FloatArray | None:
    """What a mean request asks for, (4, C, T): reads, writes, bytes read and bytes written, in KIND_BYTES."""
    if not {"request_bytes", "read_share"} & load.keys():
        return None
    share = load.get("read_share", np.ones(shape))
    size = load.get("request_bytes", np.zeros(shape)) / KIND_BYTES
    return np.stack([share, 1.0 - share, share * size, (1.0 - share) * size])


class ExpectedTime:
    """The model of one group's metric. `demand` and so on: see `Expected`."""

    def __init__(self, shift_seconds: float) -> None:
        self._kept = 1.0 - 1.0 / max(MIN_MEMORY_WINDOWS, MEMORY_SECONDS / shift_seconds)
        self._columns = Columns(
            {
                "gram": (KINDS_OF_REQUEST * (KINDS_OF_REQUEST + 1) // 2,),
                "linear": (KINDS_OF_REQUEST,),
                "requests": (),
                "cell_sum": (CELLS,),
                "cell_samples": (CELLS,),
                "cell_place": (CELLS,),
                "size_samples": (SIZE_CELLS,),
                "share_samples": (SHARE_CELLS,),
            }
        )
        self.demands: FloatArray = np.array([1.0, 1.0, 0.0, 0.0])
        self.origin: float | None = None
        self.level, self.spread, self._ticks = float("nan"), 0.0, 0.0
        self.pairs: FloatArray = np.zeros((CELLS, CELLS))
        self.sums: FloatArray = np.zeros(CELLS)
        self.common: FloatArray = np.zeros(CELLS)

    def learn_common(self, load, logs: FloatArray, present: BoolArray) -> FloatArray:
        """Returns the group's level at each tick, (T,)."""
        service = self._service(request_kinds(load, logs.shape))
        position = self._position(load, service)
        rest = logs - service
        if position is None:
            return self.group_level(rest, present)
        curve = self.common_curve(position)
        middle = self.group_level(rest - curve, present)
        off = rest - curve - middle
        own = np.clip(off, -CLIP, CLIP) + curve + middle - self._level_or(rest - curve)
        told = np.isfinite(own) & np.isfinite(position) & present[:, None]
        tick = np.broadcast_to(np.arange(logs.shape[1])[None, :], logs.shape)[told]
        place = position[told]
        low = np.minimum(place.astype(np.intp), CELLS - 2)
        part = place - low
        ticks = logs.shape[1]
        size = CELLS * ticks
        n = (np.bincount(low * ticks + tick, 1.0 - part, size) + np.bincount((low + 1) * ticks + tick, part, size)).reshape(CELLS, ticks)
        total = n.sum(axis=0)
        y = own[told]
        s = (np.bincount(low * ticks + tick, (1.0 - part) * y, size) + np.bincount((low + 1) * ticks + tick, part * y, size)).reshape(CELLS, ticks)
        square = (np.bincount(low, (1.0 - part) ** 2, CELLS) + np.bincount(low + 1, part**2, CELLS))
        cross = np.bincount(low, part * (1.0 - part), CELLS)
        self.pairs *= self._kept
        self.sums *= self._kept
        b = np.diag(square)
        b += np.diag(cross[:-1], 1) + np.diag(cross[:-1], -1)
        self.pairs += b - (n / (total + KAPPA)) @ n.T
        self.sums += s.sum(axis=1) - (n / (total + KAPPA)) @ s.sum(axis=0)
        step = np.diff(np.eye(CELLS), axis=0)
        self.common = np.linalg.solve(self.pairs + SMOOTH * step.T @ step + 1e-3 * np.eye(CELLS), self.sums)
        return self.group_level(rest - self.common_curve(position), present)

    def common_curve(self, position):
        where = np.nan_to_num(position)
        low = np.minimum(where.astype(np.intp), CELLS - 2)
        part = where - low
        return np.where(np.isfinite(position), (1.0 - part) * self.common[low] + part * self.common[low + 1], 0.0)

    def group_level(self, adjusted: FloatArray, present: BoolArray) -> FloatArray:
        """The group's level at each tick, (T,): the middle of `adjusted` (C, T), or the usual level."""
        count = (np.isfinite(adjusted) & present[:, None]).sum(axis=0)
        return np.where(count >= 3, row_median(np.where(present[:, None], adjusted, np.nan).T), self._level_or(adjusted))

    def _level_or(self, adjusted: FloatArray) -> float:
        if np.isfinite(self.level):
            return self.level
        own = row_median(adjusted)
        return float(row_median(own[None, :])[0])

    def learn_level(self, middle: FloatArray) -> None:
        known = middle[np.isfinite(middle)]
        if not known.size:
            return
        mean = float(known.mean())
        if not np.isfinite(self.level):
            self.level = mean
        self._ticks = self._ticks * self._kept + known.size
        gain = known.size / self._ticks
        self.spread = float(np.sqrt((1 - gain) * self.spread**2 + gain * float(np.mean((known - self.level) ** 2))))
        self.level += gain * (mean - self.level)

    def _service(self, kinds: FloatArray | None) -> FloatArray | float:
        if kinds is None:
            return 0.0
        time = np.tensordot(self.demands, kinds, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(np.where(time > 0, time, np.nan))

    def _position(self, load: Mapping[str, FloatArray], service: FloatArray | float) -> FloatArray | None:
        """Where a demand lies on the load curve, in cells; (C, T)."""
        name = "operations" if "operations" in load else "throughput"
        if name not in load:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log2(np.where(load[name] > 0, load[name], np.nan))
        log = log + (service / np.log(2.0) if name == "operations" else 0.0)
        if self.origin is None:
            middle = row_median(row_median(log)[None, :])[0]
            if not np.isfinite(middle):
                return None
            self.origin = float(middle)
        return np.clip((log - self.origin) * CELLS_AN_OCTAVE + FIRST_CELL, 0.0, CELLS - 1.0)

    def expected(
        self, components: Sequence[str], load: Mapping[str, FloatArray], shape: tuple[int, int], trusted: BoolArray
    ) -> Expected:
        at = self._columns.places(components)
        kinds = request_kinds(load, shape)
        service = self._service(kinds)
        log_time, doubt = np.zeros(shape) + np.nan_to_num(service), np.zeros(shape)
        position = self._position(load, service)
        if position is not None:
            point, level, beyond, edge = self._curve(at, trusted)
            known = np.isfinite(position)
            where = np.where(known, position, 0.0)
            near = np.rint(where).astype(np.intp)
            low = np.clip(near - (where < np.take_along_axis(point, near, 1)), 0, CELLS - 2)
            start, end = np.take_along_axis(point, low, 1), np.take_along_axis(point, low + 1, 1)
            part = np.clip((where - start) / np.maximum(end - start, 1e-6), 0.0, 1.0)
            curve = (1.0 - part) * np.take_along_axis(level, low, 1) + part * np.take_along_axis(level, low + 1, 1)
            log_time += np.where(known, curve, 0.0)
            more = np.maximum(where - beyond[:, None], 0.0) / CELLS_AN_OCTAVE
            left = np.maximum(1.0 - edge[:, None] * 2.0**more, 1e-9)
            grown = np.minimum(np.log((1.0 - edge[:, None]) / left), MAX_UNSEEN_LOG_RATIO)
            doubt += np.where(known, grown, 0.0)
        if "request_bytes" in load:
            seen = self._seen(self._columns["size_samples"][:, at].T, trusted)
            cell = _size_cell(load["request_bytes"])
            top = np.where(seen, np.arange(SIZE_CELLS), -np.inf).max(axis=1)
            doubt += np.nan_to_num(np.maximum(cell - np.where(np.isfinite(top), top + 1.0, np.inf)[:, None], 0.0)) * np.log(2.0)
        if "read_share" in load:
            seen = self._seen(self._columns["share_samples"][:, at].T, trusted)
            cell = _share_cell(load["read_share"])
            within = np.take_along_axis(seen, np.nan_to_num(cell).astype(np.intp), 1)
            none = ~seen.any(axis=1)
            doubt += np.where(np.isfinite(cell) & ~within & ~none[:, None], UNSEEN_SHARE_LOG_RATIO / 4, 0.0)
        return Expected(log_time, doubt)

    def _seen(self, samples: FloatArray, trusted: BoolArray) -> BoolArray:
        """Which cells enough others were seen in; (C, cells)."""
        here = samples >= MIN_CELL_SAMPLES
        others = (here & trusted[:, None]).sum(axis=0)[None, :] - (here & trusted[:, None])
        return others >= MIN_SEEN

    def _curve(self, at: NDArray[np.intp], trusted: BoolArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """The others' curve: points (C, CELLS) and levels there, the last point known (C,), the utilisation there.

        Points are filled to the left and right of the known ones.
        """
        samples = self._columns["cell_samples"][:, at].T
        seen = self._seen(samples, trusted)
        with np.errstate(divide="ignore", invalid="ignore"):
            mine = np.where(samples >= MIN_CELL_SAMPLES, samples, np.nan)
            level = leave_one_out_median(self._columns["cell_sum"][:, at].T / mine, trusted)
            point = leave_one_out_median(self._columns["cell_place"][:, at].T / mine, trusted)
        cells = np.arange(CELLS)
        below = np.maximum.accumulate(np.where(seen, cells, -1), axis=1)
        above = np.minimum.accumulate(np.where(seen, cells, CELLS)[:, ::-1], axis=1)[:, ::-1]
        none = ~seen.any(axis=1)
        low = np.where(below >= 0, below, np.minimum(above, CELLS - 1))
        # Each cell that is not seen is a point on the line between its neighbours that are, or flat beyond them.
        high = np.where(above < CELLS, above, low)
        left, right = (np.take_along_axis(level, side, 1) for side in (low, high))
        start, end = (np.take_along_axis(point, side, 1) for side in (low, high))
        between = (below >= 0) & (above < CELLS)
        point = np.where(seen, point, cells.astype(np.float64))
        part = np.where(between & (end > start), (point - start) / np.where(end > start, end - start, 1.0), 0.0)
        level = left + np.clip(part, 0.0, 1.0) * (right - left)
        level[none] = 0.0
        row, last = np.arange(len(at)), np.maximum(below[:, -1], 0)
        top = np.where(none, np.inf, point[row, last])
        before = np.where(last > 0, below[row, last - 1], -1)
        wide = (top - point[row, np.maximum(before, 0)]) / CELLS_AN_OCTAVE
        rise = level[row, last] - level[row, np.maximum(before, 0)]
        slope = np.where((before >= 0) & (wide > 0) & ~none, rise / np.where(wide > 0, wide, 1.0) / np.log(2.0), 0.0)
        slope = np.maximum(slope, 0.0)
        edge = slope / (1.0 + slope) * 2.0 ** np.where(slope > 0, wide / 2.0, 0.0)
        return point, level, top, np.clip(edge, HALF_CAPACITY, 0.95)

    def learn(
        self,
        components: Sequence[str],
        load: Mapping[str, FloatArray],
        logs: FloatArray,
        trusted: BoolArray,
    ) -> None:
        """Learns from `logs` (C, T): of the metric over the group's level; NaN = unknown."""
        at = self._columns.places(components)
        for name in ("gram", "linear", "requests", "cell_sum", "cell_place", "cell_samples", "size_samples", "share_samples"):
            self._columns[name][..., at] *= self._kept
        kinds = request_kinds(load, logs.shape)
        known = np.isfinite(logs)
        if kinds is not None:
            known = known & np.isfinite(kinds).all(axis=0)
            per = np.where(known, kinds / np.exp(logs), 0.0)
            self._columns["linear"][:, at] += per.sum(axis=2)
            pairs = np.einsum("ict,jct->ijc", per, per)
            self._columns["gram"][:, at] += pairs[_TRIANGLE]
            self._columns["requests"][at] += known.sum(axis=1)
            self._fit(at, trusted)
        service = self._service(kinds)
        position = self._position(load, service)
        if position is not None:
            rest = logs - service
            told = np.isfinite(rest) & np.isfinite(position)
            row = np.broadcast_to(np.arange(len(at))[:, None], logs.shape)[told]
            low = np.minimum(position[told].astype(np.intp), CELLS - 1)
            near = np.rint(position[told]).astype(np.intp)
            flat = row * CELLS + near
            size = len(at) * CELLS
            self._columns["cell_samples"][:, at] += np.bincount(flat, minlength=size).reshape(-1, CELLS).T
            self._columns["cell_place"][:, at] += np.bincount(flat, position[told], minlength=size).reshape(-1, CELLS).T
            self._columns["cell_sum"][:, at] += np.bincount(flat, rest[told], minlength=size).reshape(-1, CELLS).T
        for name, column, cells, of in (
            ("request_bytes", "size_samples", SIZE_CELLS, _size_cell),
            ("read_share", "share_samples", SHARE_CELLS, _share_cell),
        ):
            if name in load:
                cell = np.where(np.isfinite(logs), of(load[name]), np.nan)
                told = np.isfinite(cell)
                row = np.broadcast_to(np.arange(len(at))[:, None], logs.shape)[told]
                flat = row * cells + cell[told].astype(np.intp)
                self._columns[column][:, at] += np.bincount(flat, minlength=len(at) * cells).reshape(-1, cells).T

    def _fit(self, at: NDArray[np.intp], trusted: BoolArray) -> None:
        """Fits the demands: each member counts once, and little where its own factor is far from the others'."""
        number = self._columns["requests"][at]
        use = trusted & (number >= MIN_CELL_SAMPLES)
        if use.sum() < 3:
            return
        gram = np.zeros((KINDS_OF_REQUEST, KINDS_OF_REQUEST, int(use.sum())))
        gram[_TRIANGLE] = self._columns["gram"][:, at[use]] / number[use]
        gram[_TRIANGLE[::-1]] = gram[_TRIANGLE]
        linear = self._columns["linear"][:, at[use]] / number[use]
        b = self.demands.copy()
        for _ in range(REWEIGHTS):
            first, second = b @ linear, np.einsum("i,ijc,j->c", b, gram, b)
            with np.errstate(divide="ignore", invalid="ignore"):
                factor = -np.log(np.where((first > 0) & (second > 0), first / second, np.nan))
            factor = np.nan_to_num(factor - np.nanmedian(factor)) if np.isfinite(factor).any() else np.zeros(first.size)
            weight = 1.0 / np.maximum(np.abs(factor), MIN_MEMBER_LOG)
            weight /= weight.sum()
            g, s = gram @ weight, linear @ weight
            b = _non_negative(g, s, b)
        if np.isfinite(b).all() and (b > 0).any():
            self.demands = b

    def forget(self, components: Collection[str]) -> None:
        self._columns.forget(components)

    def state(self) -> dict[str, Any]:
        return {"columns": self._columns.state(), "demands": self.demands.tolist(), "origin": self.origin}


def _non_negative(gram: FloatArray, linear: FloatArray, start: FloatArray) -> FloatArray:
    """Minimises b'Gb - 2 b's with b >= 0, by coordinate descent from `start`."""
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-30))
    g, s = gram / np.outer(scale, scale), linear / scale
    g = g + PRIOR_MEMBERS * 0.01 * np.eye(len(s))
    s = s + PRIOR_MEMBERS * 0.01 * start * scale
    rows, b = g.tolist(), (start * scale).tolist()
    target = s.tolist()
    for _ in range(SWEEPS * 5):
        for i, row in enumerate(rows):
            if row[i] <= 0:
                continue
            b[i] = max((target[i] - sum(x * y for j, (x, y) in enumerate(zip(row, b)) if j != i)) / row[i], 0.0)
    return np.array(b) / scale


def _size_cell(size: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.clip(np.floor(np.log2(np.where(size > 0, size, np.nan) / 512.0)), 0, SIZE_CELLS - 1)


def _share_cell(share: FloatArray) -> FloatArray:
    return np.clip(np.floor(share * SHARE_CELLS), 0, SHARE_CELLS - 1)
