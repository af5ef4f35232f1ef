"""Expected time of requests: as their kind, their size and the demand on a component explain it.

Learned from all members at all times, so that a component is held against the times of the others at its
load, also at other times. Where too few were ever seen at a load it is in doubt: that excuses the component
in question, and moves no other.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, FloatArray
from laggard_aggregator.detect.laggard.component_arrays import ComponentArrays, Places
from laggard_aggregator.detect.laggard.evidence import MEMORY_WINDOWS
from laggard_aggregator.detect.laggard.load_curve import (
    CURVE_LOG_RATIO,
    LOG_CELL,
    MIN_OTHERS,
    MIN_OWN_SAMPLES,
    SURE_SAMPLES,
    LoadCurve,
    seen_by_others,
)
from laggard_aggregator.detect.laggard.service_demand import ServiceDemand, kinds_of_request
from laggard_aggregator.detect.peers import leave_one_out_median, row_median

MEMORY_SECONDS = 3 * 86400.0
"""Time over which loads are remembered, so that a load of each night is known in the next; MEMORY_WINDOWS at
least."""
SIZE_CELLS = 16
"""Octaves of request sizes, from SMALLEST_BYTES on."""
SMALLEST_BYTES = 512.0
SHARE_CELLS = 4
"""Parts of the read share."""
UNSEEN_SHARE_LOG_RATIO = float(np.log(8.0)) / 4.0
"""Log of the most that a mix of reads and writes may explain which too few others were seen with."""
STEADY_RATIO = 1.0 / 3.0
"""Change of the requests in flight over those of their rate and of their time, from which they are steady."""
CLOSED_SHARE = 0.75
"""Share of windows with steady requests in flight from which clients keep that number (a closed loop), and of
the others from which they do not."""
AMOUNTS = frozenset({"operations", "throughput"})
"""Loads of which one is the demand on a component."""
Load = Mapping[str, FloatArray]


@dataclass(frozen=True, slots=True)
class Expected:
    """Times at some load, logs; (C, T), or numbers of the group.

    `log_time`: as others' times tell it, over the group's level. `beyond`: by how much a component's own are
    usually longer at loads at which too few others were seen, and `doubt`, by how much they may be longer
    yet. `left`: by how much its own are longer for no reason that load gives, infinite where unknown.
    `demand`: log of it, less a constant, NaN where unknown; of a `closed_loop` the requests in flight.
    `usual`: the group's usual level, NaN where unknown, and `wander`, its standard deviation from tick to
    tick. `windows`: how many it is known from. `service`: busy time of a request by its kind and size, over
    that of a typical one.
    """

    log_time: FloatArray
    service: FloatArray
    beyond: FloatArray
    doubt: FloatArray
    left: FloatArray
    demand: FloatArray
    closed_loop: bool
    usual: float
    wander: float
    windows: float


class KnownKinds(ComponentArrays):
    """Samples of each member by request size and by read share, and sums of the logs by which these took
    longer than expected; (cells, N).
    """

    SHAPES: ClassVar[Mapping[str, tuple[int, ...]]] = {
        "request_bytes": (SIZE_CELLS,),
        "request_bytes_longer": (SIZE_CELLS,),
        "read_share": (SHARE_CELLS,),
        "read_share_longer": (SHARE_CELLS,),
    }
    request_bytes: FloatArray
    request_bytes_longer: FloatArray
    read_share: FloatArray
    read_share_longer: FloatArray

    def learn(self, components: Sequence[str], load: Load, longer: FloatArray, kept: float) -> None:
        """Adds the samples of `load` and `longer` (C, T), logs; of those before, `kept` stay."""
        at = self.places(components)
        for name in ("request_bytes", "read_share"):
            samples, sums = getattr(self, name), getattr(self, f"{name}_longer")
            cells = len(samples)
            samples[:, at] *= kept
            sums[:, at] *= kept
            if name in load:
                cell = _cell(name, load[name])
                told = np.isfinite(longer) & np.isfinite(cell)
                row = np.broadcast_to(np.arange(at.size)[:, None], cell.shape)[told]
                flat, size = row * cells + cell[told].astype(np.intp), at.size * cells
                samples[:, at] += np.bincount(flat, minlength=size).reshape(-1, cells).T
                sums[:, at] += np.bincount(flat, longer[told], size).reshape(-1, cells).T

    def doubt(self, components: Sequence[str], load: Load, shape: tuple[int, ...]) -> FloatArray:
        """The log of how much longer requests may take for being larger than others', or of another mix;
        (C, T).
        """
        at, doubt = self.places(components), np.zeros(shape)
        if "request_bytes" in load:
            # Time grows by the byte: larger requests tell of smaller ones, too.
            as_large = np.cumsum(self.request_bytes[::-1, at], axis=0)[::-1].T
            seen = seen_by_others(as_large, SURE_SAMPLES)
            upper = np.where(seen, np.arange(SIZE_CELLS) + 1.0, -np.inf).max(axis=1)
            sizes = load["request_bytes"]  # 0 where a source does not count bytes
            octaves = np.log2(np.where(sizes > 0, sizes, np.nan) / SMALLEST_BYTES)
            # In a first window nothing was seen before: the others' middle in it is what is known.
            everyone = np.ones(at.size, dtype=np.bool_)
            middle = leave_one_out_median(row_median(octaves)[:, None], everyone) + 1.0
            beyond = octaves - np.where(np.isfinite(upper)[:, None], upper[:, None], middle)
            larger = np.log(2.0) * np.nan_to_num(np.maximum(beyond, 0.0), posinf=0.0)
            doubt += np.minimum(larger, self._own(at, "request_bytes", load))
        if "read_share" in load:
            seen = seen_by_others(self.read_share[:, at].T, SURE_SAMPLES)
            cell = _cell("read_share", load["read_share"])
            within = np.take_along_axis(seen, np.nan_to_num(cell).astype(np.intp), 1)
            odd = np.isfinite(cell) & ~within & np.asarray(seen.any(axis=1))[:, None]
            mixed = np.where(odd, UNSEEN_SHARE_LOG_RATIO, 0.0)
            doubt += np.minimum(mixed, self._own(at, "read_share", load))
        return doubt

    def _own(self, at: Places, name: str, load: Load) -> FloatArray:
        """The log by which a member's own requests of such a kind usually take longer; (C, T), infinite where
        it has shown too few.
        """
        samples = getattr(self, name)[:, at].T
        shown = np.where(samples >= MIN_OWN_SAMPLES, samples, np.nan)
        usual = np.maximum(getattr(self, f"{name}_longer")[:, at].T / shown, 0.0)
        cell = _cell(name, load[name])
        own = np.take_along_axis(usual, np.nan_to_num(cell).astype(np.intp), 1)
        return np.where(np.isfinite(cell) & np.isfinite(own), own, np.inf)


class ExpectedTime:
    """The model of one group's metric; `level`, `wander`: as `Expected.usual`, over `ticks`.

    `steady_share`: of windows, lately, in which the requests in flight were steady; None before there is one.
    """

    def __init__(self, shift_seconds: float) -> None:
        self._kept = 1.0 - 1.0 / max(MEMORY_WINDOWS, MEMORY_SECONDS / shift_seconds)
        self._service = ServiceDemand()
        self._busy = ServiceDemand()
        self._curve = LoadCurve()
        self._kinds = KnownKinds()
        self._level = float("nan")
        self._wander = 0.0
        self._ticks = 0.0
        self._windows = 0.0
        self._steady_share: float | None = None
        self._closed_loop = False

    def learn_loop(self, load: Load, logs: FloatArray) -> None:
        """Learns, before `expected`, whether clients keep a number of requests in flight; arguments as there.

        Of times alone: a rate times a rate is no number in flight. A change begins a new curve.
        """
        if not AMOUNTS & load.keys():
            return
        steady = _in_flight_is_steady(_log(load[_demand_name(load)]), logs)
        if steady is None:
            return
        before, self._steady_share = self._steady_share, float(steady)
        if before is not None:
            self._steady_share = before + (float(steady) - before) / MEMORY_WINDOWS
        closed = self._steady_share > (CLOSED_SHARE if not self._closed_loop else 1.0 - CLOSED_SHARE)
        if closed != self._closed_loop:
            self._closed_loop, self._curve = closed, LoadCurve()

    def expected(
        self, components: Sequence[str], load: Load, logs: FloatArray, slope: Callable[[str], float]
    ) -> Expected:
        """The expected times at `load`, by name (C, T), NaN = unknown; `logs` (C, T) as of `learn`.

        `slope`: of latency over the load of a name, in logs, for loads higher than known.
        """
        shape = logs.shape
        kinds = kinds_of_request(load, shape)
        service, busy = self._kinds_time(kinds, shape), self._busy.log_time(kinds, shape)
        log_time, doubt = np.nan_to_num(service), self._kinds.doubt(components, load, shape)
        beyond, left = np.zeros(shape), np.full(shape, np.inf)
        position = self._position(load, service, logs)
        if position is not None:
            more = slope(_demand_name(load))
            curve = self._curve.of_others(components, more, closed_loop=self._closed_loop)
            unseen = curve.unseen(position, self._curve.own_times(components))
            log_time += curve.at(position)
            beyond, left = unseen.usual, unseen.left
            doubt += unseen.doubt
        usual = self._level if position is not None else np.nan
        demand = np.full(shape, np.nan) if position is None else position * LOG_CELL
        return Expected(
            log_time=log_time,
            service=np.nan_to_num(busy),
            beyond=beyond,
            doubt=doubt,
            left=left,
            demand=demand,
            closed_loop=self._closed_loop,
            usual=usual,
            wander=self._wander,
            windows=self._windows,
        )

    def learn(  # noqa: PLR0917
        self,
        components: Sequence[str],
        load: Load,
        logs: FloatArray,
        served: FloatArray | None,
        healthy: BoolArray,
        noise: float,
    ) -> None:
        """Learns from `logs` (C, T) of the metric, and `served` (C, T), of service times where known.

        `healthy` (C,): the members by whom the group's level is told. `noise`: variance of one sample, a log.
        """
        self._windows = self._kept * self._windows + 1.0
        kinds = kinds_of_request(load, logs.shape)
        service = self._kinds_time(kinds, logs.shape)
        position = self._position(load, service, logs)
        rest = logs - service
        if position is not None:
            members = np.where(healthy[:, None], rest, np.nan)
            level = self._group_level(members - self._curve.pooled_at(position))
            self._curve.prior = noise / CURVE_LOG_RATIO**2
            self._curve.learn_pooled(
                position, members - self._usual(level), level - self._usual(level), self._kept
            )
            rest = rest - self._curve.pooled_at(position)
        level = self._group_level(np.where(healthy[:, None], rest, np.nan))
        self._learn_level(level)
        above = logs - level
        unloaded = above if position is None else above - self._curve.growth_at(position)
        self._service.learn(components, kinds, unloaded, self._kept)
        if served is not None:
            self._busy.learn_means(components, kinds, served, load["operations"], self._kept)
        service = self._kinds_time(kinds, logs.shape)
        longer = above - service
        if position is not None:
            position = self._curve.position(self._demand(load, service, logs))
            self._curve.learn(components, position, above - service, self._kept)
            longer = longer - self._curve.pooled_at(position)
        self._kinds.learn(components, load, longer, self._kept)

    def _kinds_time(self, kinds: FloatArray | None, shape: tuple[int, ...]) -> FloatArray:
        """The part of log times that the kind of requests explains: by busy times where these were told.

        In times alone a kind that comes with load is not told from load.
        """
        known = self._busy if self._busy.fitted else self._service
        return known.log_time(kinds, shape)

    def _demand(self, load: Load, service: FloatArray, logs: FloatArray) -> FloatArray:
        """The log of the demand on a component: its requests times the time of each, or bytes; (C, T).

        Of a closed loop the requests, or bytes, in flight (Little's law): its rate falls as times grow.
        """
        name = _demand_name(load)
        demand = _log(load[name])
        if self._closed_loop:
            return demand + logs
        return demand + service if name == "operations" else demand

    def _position(self, load: Load, service: FloatArray, logs: FloatArray) -> FloatArray | None:
        known = AMOUNTS & load.keys()
        return self._curve.position(self._demand(load, service, logs)) if known else None

    def _group_level(self, rest: FloatArray) -> FloatArray:
        """The middle of `rest` (C, T) at each tick, (T,): the usual level where few members have a value."""
        middle = row_median(rest.T)
        enough = np.isfinite(rest).sum(axis=0) >= MIN_OTHERS
        return np.where(enough, middle, self._usual(middle))

    def _usual(self, level: FloatArray) -> float:
        if np.isfinite(self._level):
            return self._level
        return float(row_median(level[None, :])[0])

    def _learn_level(self, level: FloatArray) -> None:
        known = level[np.isfinite(level)]
        if not known.size:
            return
        mean, before = float(known.mean()), self._usual(level)
        self._ticks = self._kept * self._ticks + known.size
        part = known.size / self._ticks
        variance = float(np.mean((known - before) ** 2))
        self._wander = float(np.sqrt((1.0 - part) * self._wander**2 + part * variance))
        self._level = before + part * (mean - before)

    def forget(self, components: Collection[str]) -> None:
        """Frees the samples of `components`; the group's curve stays."""
        for part in (self._service, self._busy, self._curve, self._kinds):
            part.forget(components)

    def state(self) -> dict[str, Any]:
        """Plain data from which `restored` goes on exactly."""
        return {
            "service": self._service.state(),
            "busy": self._busy.state(),
            "curve": self._curve.state(),
            "kinds": self._kinds.state(),
            "level": self._level if np.isfinite(self._level) else None,
            "wander": self._wander,
            "ticks": self._ticks,
            "windows": self._windows,
            "steady_share": self._steady_share,
            "closed_loop": self._closed_loop,
        }

    def restored(self, state: Mapping[str, Any]) -> Self:
        """Itself, going on from `state`. Raises ValueError, TypeError or KeyError on any other."""
        self._service.restored(state["service"])
        if "busy" in state:  # before version 16: not learned
            self._busy.restored(state["busy"])
        self._curve.restored(state["curve"])
        if "request_bytes_longer" in state["kinds"]:  # before version 19: not learned
            self._kinds.restored(state["kinds"])
        self._level = float("nan") if state["level"] is None else float(state["level"])
        self._wander, self._ticks = float(state["wander"]), float(state["ticks"])
        self._windows = float(state["windows"])
        steady = state.get("steady_share")  # before version 13: unknown
        self._steady_share = None if steady is None else float(steady)
        self._closed_loop = bool(state.get("closed_loop", False))
        return self


def _log(values: FloatArray) -> FloatArray:
    return np.asarray(np.log(np.where(values > 0.0, values, np.nan)))


def _in_flight_is_steady(demand: FloatArray, logs: FloatArray) -> bool | None:
    """Whether the requests in flight change from tick to tick by much less than their rate and time do.

    `demand`, `logs` (C, T): logs of rate and time. None where too little is known.
    """
    rate, time, in_flight = (
        row_median(row_median(np.abs(np.diff(course, axis=1)))[None, :])[0]
        for course in (demand, logs, demand + logs)
    )
    if not np.isfinite(in_flight):
        return None
    return bool(in_flight < STEADY_RATIO * min(rate, time))


def _demand_name(load: Load) -> str:
    return "operations" if "operations" in load else "throughput"


def _cell(name: str, values: FloatArray) -> FloatArray:
    """The cell of each of `values` (C, T), NaN where it is NaN."""
    if name == "read_share":
        return np.clip(np.floor(values * SHARE_CELLS), 0.0, SHARE_CELLS - 1.0)
    known = np.where(values > 0.0, values, np.nan)
    return np.clip(np.floor(np.log2(known / SMALLEST_BYTES)), 0.0, SIZE_CELLS - 1.0)
