"""Load model: the part of a latency that throughput, request size and read share explain."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, FloatArray
from laggard_aggregator.detect.laggard.evidence import HARMLESS_LOG_RATIO, MEMORY_WINDOWS
from laggard_aggregator.detect.peers import leave_one_out_median, row_median
from laggard_aggregator.detect.settings import LOADS

MIN_OPERATIONS = 4.0
"""I/Os in an interval below which their mean latency is no measurement."""
MIN_LOAD_SHARE = 0.02
"""Operations and bytes relative to the peers' middle below which, both, an interval counts as idle."""
RIDGE = 1.0
"""Weight of the belief that load explains nothing, in ticks of unit variance of its log; of recent load, in
windows."""
MIN_RECENT_LOG_RATIO, MAX_RECENT_LOG_RATIO = -HARMLESS_LOG_RATIO / 2.0, HARMLESS_LOG_RATIO
"""Most that a lack of recent load adds to a log ratio, and most that recent load takes from it."""
MAX_LOG_DEVIATION = 1.5
"""Limit of logs that teach, and of the log by which a queue is steadier, either way."""
MAX_SLOPE = 1.0
"""Latency grows with no higher power of load."""
SATURATED_BUSY_SHARE = 0.97
"""Busy share of a group's middle beyond which busy time does not tell components apart."""
MIN_SERVICE_STD = 0.03
"""Standard deviation of the log of busy time for an I/O, tick by tick, below which it is no measurement."""
PARALLEL_SLOPE = -0.25
"""Slope of busy time for an I/O over I/Os under way, in logs, below which a device serves many at once."""
FLOOR_TIME_SHARE = 0.05
"""Share of the time in which a queue is at its floor."""
DISPERSION_EXPONENT = 0.35
"""Least power of its length with which the dispersion of a queue of clients' requests grows; measured: 0.44
to 1.0 in healthy queues, 0.35 and less, also below 0, where a program adds to them (docs/detection.md)."""


def usable(values: FloatArray, load: Mapping[str, FloatArray]) -> BoolArray:
    """Intervals whose latency is a measurement: as `values` (C, T), False where nearly idle."""
    with np.errstate(invalid="ignore"):
        told = np.isfinite(values) & (values > 0)
        if "operations" in load:
            told &= ~(load["operations"] < MIN_OPERATIONS)
        little = []
        for name in ("operations", "throughput"):
            if name in load:
                middle = row_median(np.where(told, load[name], np.nan).T)
                little.append(load[name] < MIN_LOAD_SHARE * middle[None, :])
    return told & ~np.all(little, axis=0) if little else told


def with_uncounted(values: FloatArray, load: Mapping[str, FloatArray]) -> FloatArray:
    """Mean times `values` (C, T) of all I/Os, also of intervals whose I/Os took no time that was counted.

    Kernels print whole milliseconds: a few short I/Os add 0, or 1 for those before them, too. Such an
    interval is taken together with those after it up to the first that counted some time; each has the mean
    of all.
    """
    done = load.get("operations")
    if done is None:
        return values
    uncounted = (values == 0.0) & (done >= MIN_OPERATIONS)
    rows = np.flatnonzero(uncounted.any(axis=1))
    if not rows.size:
        return values
    values = values.copy()
    for row in rows.tolist():
        known = np.flatnonzero(np.isfinite(values[row]) & (done[row] > 0.0))
        ends = np.flatnonzero(values[row, known] > 0.0)
        if not ends.size:
            continue
        part = np.minimum(np.searchsorted(ends, np.arange(known.size)), ends.size - 1)
        requests = done[row, known]
        time = np.bincount(part, values[row, known] * requests) / np.bincount(part, requests)
        values[row, known] = time[part]
    return values


def features(load: Mapping[str, FloatArray], told: BoolArray) -> dict[str, FloatArray]:
    """The loads as they enter the prediction: logs of amounts, the read share itself; (C, T) each."""
    columns = {}
    for name in LOADS:
        if name not in load or (name == "throughput" and {"operations", "request_bytes"} <= load.keys()):
            continue
        values = np.where(told, load[name], np.nan)
        if name != "read_share":
            with np.errstate(divide="ignore", invalid="ignore"):
                values = np.where(values > 0, np.log(values), np.nan)
        columns[name] = values
    return columns


def log_moved(loads: Mapping[str, FloatArray]) -> FloatArray | None:
    """The log of bytes moved, of I/Os where their sizes are unknown; (C, T). None where both are unknown.

    `loads`: logs as of `features`, also relative to peers.
    """
    if "throughput" in loads:
        return loads["throughput"]
    if "operations" not in loads:
        return None
    return loads["operations"] + loads.get("request_bytes", 0.0)


def service(load: Mapping[str, FloatArray], told: BoolArray, latency: FloatArray) -> FloatArray | None:
    """The log of the time that each was busy for an I/O, less a constant; (C, T), NaN where not measured.

    `latency` (C, T): logs of the latency of all I/Os. None where that is unknown: without counters of busy
    time, in a group that is busy all the time, and of devices that are not seen to serve one I/O after
    another.
    """
    if not {"busy_share", "operations"} <= load.keys():
        return None
    busy = np.where(told & (load["busy_share"] > 0), load["busy_share"], np.nan)
    middle = row_median(row_median(busy)[None, :])[0]
    if not middle <= SATURATED_BUSY_SHARE:
        return None
    demand: FloatArray = np.log(busy) - np.log(np.where(told, load["operations"], np.nan))
    return demand if _serves_in_turn(demand, latency - demand) else None


def _serves_in_turn(service: FloatArray, depth: FloatArray) -> bool:
    """Whether busy time for an I/O is service time: it varies, and does not shrink as the queue grows.

    `depth` (C, T): log of the I/Os under way while busy (Little's law). A device that serves many at once is
    busy for less time an I/O the more there are: the slope of `service` over `depth` is -1 where latency is
    constant, 0 for one that serves them in turn.
    """
    along = [
        np.clip(x - row_median(x)[:, None], -MAX_LOG_DEVIATION, MAX_LOG_DEVIATION) for x in (service, depth)
    ]
    both = np.isfinite(along[0]) & np.isfinite(along[1])
    of_service, of_depth = along[0][both], along[1][both]
    if of_service.size == 0 or np.mean(of_service**2) < MIN_SERVICE_STD**2:
        return False
    return bool(of_service @ of_depth >= PARALLEL_SLOPE * (of_depth @ of_depth))


def steadiness(queue: FloatArray, trusted: BoolArray) -> FloatArray:
    """How much less each one's queue varies than a queue of clients' requests of its length; a log, (C,).

    `queue` (C, T): log of the I/Os under way, NaN where unknown; `trusted` (C,): the references. The
    dispersion of a queue is the square of its fall from its median to its floor, over the median. That of
    independent requests is the same for every length, and congestion makes it grow with the length. The
    requests that a program keeps in flight lengthen a queue and add no dispersion. 0 where unknown, as where
    one interval alone is known.
    """
    ordered, count = np.sort(queue, axis=1), np.isfinite(queue).sum(axis=1)  # NaN last
    low = (count * FLOOR_TIME_SHARE).astype(np.intp)[:, None]
    middle, floor = row_median(queue), np.take_along_axis(ordered, low, 1)[:, 0]
    fall = np.maximum(-np.expm1(floor - middle), np.finfo(np.float64).tiny)  # a constant queue's is 0
    dispersion = middle + 2.0 * np.log(fall)
    dispersion = np.where(count > 1, dispersion, np.nan)
    both = np.stack([middle, dispersion], axis=1)
    longer, wider = (both - leave_one_out_median(both, trusted)).T
    steady: FloatArray = np.nan_to_num(
        np.clip(DISPERSION_EXPONENT * longer - wider, -MAX_LOG_DEVIATION, MAX_LOG_DEVIATION)
    )
    return steady


@dataclass(slots=True)
class LoadModel:
    """How latency goes with load in this group.

    Rolling sums: `cross` (F,), `square` (F, F) over ticks; `recent_cross`, `recent_square` over windows.
    """

    cross: FloatArray = field(default_factory=lambda: np.zeros(len(LOADS)))
    square: FloatArray = field(default_factory=lambda: np.zeros((len(LOADS), len(LOADS))))
    recent_cross: float = 0.0
    recent_square: float = 0.0

    def slopes(self) -> dict[str, float]:
        """By how much the log of the latency grows with each load."""
        solution = np.linalg.solve(self.square + RIDGE * np.eye(len(LOADS)), self.cross).tolist()
        by_name = dict(zip(LOADS, solution, strict=True))
        return {
            name: s if name == "read_share" else min(max(s, 0.0), MAX_SLOPE) for name, s in by_name.items()
        }

    def likely_slope(self, name: str) -> float:
        """By how much the log of the latency may grow with that of the load `name` where it is higher than
        known.

        MAX_SLOPE, as in a queue at half of its capacity, as far as ticks do not show another.
        """
        row = LOADS.index(name)
        return max(float((self.cross[row] + RIDGE * MAX_SLOPE) / (self.square[row, row] + RIDGE)), 0.0)

    def fluctuation(self, ahead: Mapping[str, FloatArray], shape: tuple[int, ...]) -> FloatArray:
        """The part of each log ratio that load explains within the window; `shape` (C, T), 0 where unknown.

        `ahead`: loads relative to the peers', by name (C, T), each about its own middle here: a
        component's load in the whole window is for `expected.ExpectedTime` to explain.
        """
        course, slopes = np.zeros(shape), self.slopes()
        for name, load in ahead.items():
            course += slopes[name] * np.nan_to_num(load - row_median(load)[:, None])
        return course

    def learn(self, ahead: Mapping[str, FloatArray], deviations: FloatArray, trusted: BoolArray) -> None:
        """Learns from ticks within the window: both sides relative to the component's own middle.

        `deviations` (C, T): log ratios to peers. Constants of a component teach nothing, so a
        straggler's constant slowness never becomes a property of its load.
        """
        self.cross *= 1.0 - 1.0 / MEMORY_WINDOWS
        self.square *= 1.0 - 1.0 / MEMORY_WINDOWS
        if not ahead:
            return
        rows = np.zeros((len(LOADS), int(trusted.sum()), deviations.shape[1]))
        for name, load in ahead.items():
            own = load[trusted]
            rows[LOADS.index(name)] = own - row_median(own)[:, None]
        latency = deviations[trusted] - row_median(deviations[trusted])[:, None]
        known = np.isfinite(latency) & np.isfinite(rows).all(axis=0)
        x = np.clip(np.where(known, rows, 0.0), -MAX_LOG_DEVIATION, MAX_LOG_DEVIATION).reshape(len(LOADS), -1)
        y = np.clip(np.where(known, latency, 0.0), -MAX_LOG_DEVIATION, MAX_LOG_DEVIATION).ravel()
        self.cross += x @ y
        self.square += x @ x.T

    def explained_by_recent(self, load_ahead: FloatArray) -> FloatArray:
        """The part of each log ratio that recent load explains; `load_ahead` (C,): log of it over the usual.

        Write caches and garbage collection of flash make latency follow the load of the time before.
        """
        slope = self.recent_cross / (self.recent_square + RIDGE)
        part: FloatArray = min(max(slope, 0.0), MAX_SLOPE) * load_ahead
        return np.clip(part, MIN_RECENT_LOG_RATIO, MAX_RECENT_LOG_RATIO)

    def learn_recent(self, load_ahead: FloatArray, ratio_ahead: FloatArray, memory_windows: float) -> None:
        """Learns from logs of recent load and of a window's latency over the component's usual ones; (C,)."""
        kept = 1.0 - 1.0 / memory_windows
        self.recent_cross = kept * self.recent_cross + float(load_ahead @ ratio_ahead)
        self.recent_square = kept * self.recent_square + float(load_ahead @ load_ahead)

    def state(self) -> dict[str, Any]:
        """Plain data from which `restore` goes on exactly."""
        recent = {"recent_cross": self.recent_cross, "recent_square": self.recent_square}
        return {"cross": self.cross.tolist(), "square": self.square.tolist(), **recent}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> "LoadModel":
        """The model that `state` was taken of; before version 9 without recent load."""
        return cls(
            np.array(state["cross"], dtype=np.float64),
            np.array(state["square"], dtype=np.float64),
            float(state.get("recent_cross", 0.0)),
            float(state.get("recent_square", 0.0)),
        )
