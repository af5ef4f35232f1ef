"""Service demands: the time of a request as its kind and size explain it, the same for a whole group.

The time of an interval's requests adds up: so much a read, a byte read, a write and a byte written, each 0
or more. The coefficients are fitted to all members at all times by least squares of relative errors. Each
member counts once, and less the further all of its own times are from the fit, so that one ill member does
not bend it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, FloatArray
from laggard_aggregator.detect.laggard.component_arrays import ComponentArrays, Places
from laggard_aggregator.detect.laggard.load_curve import MIN_OTHERS
from laggard_aggregator.detect.peers import trimmed_mean

KINDS = 4
"""Reads, writes, and the bytes read and written in units of UNIT_BYTES."""
UNIT_BYTES = 65536.0
MIN_REQUESTS = 5.0
"""Intervals of a member from which it counts."""
MIN_DEVIATION = 0.05
"""Log of a member's own factor up to which it counts in full (least absolute deviations beyond)."""
REWEIGHTS, SWEEPS = 3, 40
"""Rounds of the robust fit in each window, and of coordinate descent in each of these."""
PRIOR_WEIGHT = 5e-4
"""Weight of the demands before, in members, where the data do not tell them apart."""

_TRIANGLE = np.triu_indices(KINDS)


def kinds_of_request(load: Mapping[str, FloatArray], shape: tuple[int, ...]) -> FloatArray | None:
    """How much of each kind a mean request asks for, (KINDS, C, T); None where neither size nor kind is
    known.
    """
    if not {"request_bytes", "read_share"} & load.keys():
        return None
    share = load.get("read_share", np.ones(shape))
    size = load.get("request_bytes", np.zeros(shape)) / UNIT_BYTES
    return np.stack([share, 1.0 - share, share * size, (1.0 - share) * size])


class ServiceDemand(ComponentArrays):
    """The fit of one group.

    `gram` (10, N), `linear` (4, N): each member's sums of products, and of values, of the kinds over the
    time measured; `requests` (N,): intervals in them. `demands` (KINDS,): time for one of each kind, over
    the group's level. `typical` (KINDS,): the middle of the group's first requests, whose time is the unit:
    how far that is from the group's level is for the load curve to explain.
    """

    SHAPES: ClassVar[Mapping[str, tuple[int, ...]]] = {
        "gram": (_TRIANGLE[0].size,),
        "linear": (KINDS,),
        "requests": (),
    }
    gram: FloatArray
    linear: FloatArray
    requests: FloatArray

    def __init__(self) -> None:
        super().__init__()
        self.demands: FloatArray = np.array([1.0, 1.0, 0.0, 0.0])
        self.typical: FloatArray | None = None

    def log_time(self, kinds: FloatArray | None, shape: tuple[int, ...]) -> FloatArray:
        """The log of the time that a mean request takes over that of a typical one; (C, T), NaN = unknown.

        0 where `kinds` is None.
        """
        if kinds is None:
            return np.zeros(shape)
        time = np.tensordot(self.demands, kinds, 1) / self._unit()
        logs: FloatArray = np.log(np.where(time > 0.0, time, np.nan))
        return logs

    def learn_means(
        self,
        components: Sequence[str],
        kinds: FloatArray | None,
        logs: FloatArray,
        requests: FloatArray,
        kept: float,
    ) -> None:
        """Learns as `learn` from each member's mean over the intervals by `requests` (C, T), less its spikes.

        Least squares of relative errors underrate times that vary, as in intervals of few requests.
        """
        if kinds is None:
            return
        known = np.isfinite(logs) & np.isfinite(kinds).all(axis=0)
        share = np.where(known, requests, 0.0)
        share /= np.maximum(share.sum(axis=1, keepdims=True), 1.0)
        means = (np.where(known, kinds, 0.0) * share).sum(axis=2, keepdims=True)
        time = trimmed_mean(np.where(known, logs, np.nan), requests)[:, None]
        self.learn(components, means, time, kept, known.sum(axis=1, keepdims=True))

    def learn(
        self,
        components: Sequence[str],
        kinds: FloatArray | None,
        logs: FloatArray,
        kept: float,
        weight: FloatArray | float = 1.0,
    ) -> None:
        """Learns from `logs` (C, T) of times over the group's level; of the past, `kept` stays.

        `weight` (C, T): the intervals that each stands for.
        """
        if kinds is None:
            return
        at = self.places(components)
        known = np.isfinite(logs) & np.isfinite(kinds).all(axis=0)
        ratio = np.where(known, kinds / np.exp(logs), 0.0)
        weighted = ratio * weight
        for sums, new in (
            (self.gram, np.einsum("ict,jct->ijc", weighted, ratio)[_TRIANGLE]),
            (self.linear, weighted.sum(axis=2)),
            (self.requests, (known * weight).sum(axis=1)),
        ):
            sums[..., at] = kept * sums[..., at] + new
        if self.typical is None and known.any():
            self.typical = np.median(kinds[:, known], axis=1)
            self.demands *= np.exp(np.median(logs[known]))
        self._fit(at, self.requests[at] >= MIN_REQUESTS)

    @property
    def fitted(self) -> bool:
        """Whether enough members have counted."""
        return bool((self.requests >= MIN_REQUESTS).sum() >= MIN_OTHERS)

    def _unit(self) -> float:
        time = 1.0 if self.typical is None else float(self.demands @ self.typical)
        return time if time > 0.0 else 1.0

    def _fit(self, at: Places, counted: BoolArray) -> None:
        if counted.sum() < MIN_OTHERS:
            return
        rows = at[counted]
        gram = np.zeros((KINDS, KINDS, rows.size))
        gram[_TRIANGLE] = self.gram[:, rows] / self.requests[rows]
        gram[_TRIANGLE[::-1]] = gram[_TRIANGLE]
        linear = self.linear[:, rows] / self.requests[rows]
        for _ in range(REWEIGHTS):
            # The factor that fits a member best: the quotient of both; its log is how far its times are off.
            explained, square = (
                self.demands @ linear,
                np.einsum("i,ijc,j->c", self.demands, gram, self.demands),
            )
            off = np.log(np.maximum(square, 1e-300) / np.maximum(explained, 1e-300))
            weight = 1.0 / np.maximum(np.abs(off - np.median(off)), MIN_DEVIATION)
            weight /= weight.sum()
            self.demands = _non_negative(gram @ weight, linear @ weight, self.demands)

    def state(self) -> dict[str, Any]:
        """Plain data from which `restored` goes on exactly."""
        typical = None if self.typical is None else self.typical.tolist()
        return {**super().state(), "demands": self.demands.tolist(), "typical": typical}

    def restored(self, state: Mapping[str, Any]) -> Self:
        """Itself, going on from `state`. Raises ValueError, TypeError or KeyError on any other.

        Before version 14 the unit was that of the demands: one of a request that is as much of each kind.
        """
        self.demands = np.array(state["demands"], dtype=np.float64).reshape(KINDS)
        typical = state["typical"] if "typical" in state else self.demands / (self.demands @ self.demands)
        self.typical = None if typical is None else np.array(typical, dtype=np.float64).reshape(KINDS)
        return super().restored(state)


def _non_negative(gram: FloatArray, linear: FloatArray, before: FloatArray) -> FloatArray:
    """The x >= 0 with the least x'Gx - 2x'l, by coordinate descent from `before`, towards which it leans."""
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    leaning = PRIOR_WEIGHT * np.eye(KINDS)
    rows = (gram / np.outer(scale, scale) + leaning).tolist()
    target = (linear / scale + PRIOR_WEIGHT * before * scale).tolist()
    x = (before * scale).tolist()
    for _ in range(SWEEPS):
        for i, row in enumerate(rows):
            others = sum(row[j] * x[j] for j in range(KINDS) if j != i)
            x[i] = max((target[i] - others) / row[i], 0.0)
    demands = np.array(x) / scale
    return demands if np.isfinite(demands).all() and demands.any() else before
