"""Log ratios of components to their trusted peers, less the parts that load and waiting explain."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, FloatArray
from laggard_aggregator.detect.laggard.evidence import HARMLESS_LOG_RATIO, MEMORY_WINDOWS
from laggard_aggregator.detect.laggard.expected import AMOUNTS, Expected
from laggard_aggregator.detect.laggard.load import LoadModel, steadiness
from laggard_aggregator.detect.laggard.load_curve import MIN_OTHERS, unseen_growth
from laggard_aggregator.detect.laggard.spread import batch_variance, cross_spread
from laggard_aggregator.detect.peers import leave_one_out_median, row_median, trimmed_mean

WAITING_LOG_RATIO = 0.45
"""Log ratio of waiting, beyond service time, that counts as much as one spread of service times."""
STEADY_LOG_RATIO = 0.3
"""Log by which a queue is steadier than one of clients' requests, from which waiting counts in full."""
ALIKE = {"operations": 0.7, "request_bytes": 0.7, "read_share": 0.2}
"""How far apart loads that are alike may be: a factor of 2 of amounts and sizes, as logs."""

Loads = Mapping[str, FloatArray]


class Apart(NamedTuple):
    """By how much the side of each member is slower than the others; logs of latency and of service, (C,)."""

    latency: FloatArray
    service: FloatArray


class ToAll(NamedTuple):
    """Log ratios to the middle of all members, itself included, which has no side; (C,).

    `latency`; `sure`: of it, the part that no doubt excuses; `service`: None where it is not told.
    """

    latency: FloatArray
    sure: FloatArray
    service: FloatArray | None


class Ahead(NamedTuple):
    """How much slower components are than their trusted peers, in log ratios; of each (C,) or by tick (C, T).

    `excess` (C,): the evidence, and `variance` (C,), its squared standard error by its own course. `slower`
    (C,): of the metric, less the expected part; `rest` (C, T): the same by tick, less the doubt, too;
    `excused` (C,): mean of the doubted part; `latency` (C, T): less the expected part. `loads` (C, T):
    loads relative to the same peers. `steady` (C,): average `steadiness` with this window, None where waiting
    is not told from service. `to_all`: None unasked.
    """

    excess: FloatArray
    slower: FloatArray
    variance: FloatArray
    latency: FloatArray
    rest: FloatArray
    excused: FloatArray
    loads: Loads
    steady: FloatArray | None = None
    to_all: ToAll | None = None


def ahead_of_peers(
    logs: FloatArray,
    service: FloatArray | None,
    loads: Loads,
    trusted: BoolArray,
    *,
    expected: Expected,
    model: LoadModel,
    recent_part: FloatArray,
    apart: Apart,
    spread_before: float,
    steadier: Callable[[FloatArray], FloatArray],
    with_all: bool = False,
) -> Ahead:
    """How much slower components are than their `trusted` (C,) peers.

    `logs`, `service` (C, T): logs of the metric and of service time, if known; `loads`: of loads. `expected`:
    times at these; `model`: how latency goes with them within a window. `recent_part` (C,): of latencies,
    explained by recent load. `apart`: of sides, which is no member's own; `with_all`: asks for `to_all`.
    `spread_before`: of the windows before. `steadier`: the average of how steady each queue is, given this
    window's (C,).

    Doubt excuses slowness: it makes none faster than its peers. Where service times are known the evidence is
    theirs, as far as latencies do not contradict it by more than a spread, and waiting beyond it in units of
    WAITING_LOG_RATIO, as far as its queue is steadier than clients' requests make one: these make a component
    wait, in busy groups many times over, but do not make it slow.
    """
    logs = logs - apart.latency[:, None]
    above = logs - expected.log_time - expected.beyond
    reference, alone = _reference(above, trusted, expected.usual)
    relative = {name: load - leave_one_out_median(load, trusted) for name, load in loads.items()}
    latency = above - reference
    rest = latency - model.fluctuation(relative, latency.shape) - recent_part[:, None]
    doubt, under = expected.doubt + np.where(alone, expected.wander, 0.0), np.zeros_like(rest)
    if AMOUNTS & relative.keys():
        # No more load than that of the peers one is held against accuses nobody. In a young group more
        # explains more than was seen, but no more than a component's own times were longer there, and other
        # numbers of requests in flight tell nothing of each other's times.
        more = np.nan_to_num(row_median(expected.demand - leave_one_out_median(expected.demand, trusted)))
        growth = (np.abs(more) if expected.closed_loop else unseen_growth(more))[:, None]
        less = np.nan_to_num(leave_one_out_median(expected.log_time, trusted) - expected.log_time)
        less = np.where(alone | (growth > 0.0), 0.0, np.maximum(less, 0.0))
        young = MEMORY_WINDOWS / (MEMORY_WINDOWS + expected.windows)
        under = np.broadcast_to(young * growth, rest.shape)
        doubt = doubt + less + np.minimum(young * growth, expected.left)
    variance = batch_variance(rest)
    slower = trimmed_mean(rest)
    doubt = doubt + slower_alike(slower, loads)[:, None]
    excuse = _excused(rest, doubt, trusted)
    if expected.closed_loop:
        excuse -= _excused(-rest, under, trusted)
    to_all = None
    if with_all:
        # Halves are twice as far apart by medians without oneself.
        beyond_all = rest + reference - _middle(above, trusted)
        to_all = ToAll(trimmed_mean(beyond_all), trimmed_mean(beyond_all - excuse), None)
    rest, excused = rest - excuse, trimmed_mean(np.where(np.isfinite(rest), excuse, np.nan))
    felt = trimmed_mean(rest)
    if service is None:
        return Ahead(felt, slower, variance, latency, rest, excused, relative, None, to_all)
    service = service - apart.service[:, None] - expected.service
    served = service - leave_one_out_median(service, trusted)
    done = np.exp(loads["operations"])
    if to_all is not None:
        to_all = to_all._replace(service=trimmed_mean(service - _middle(service, trusted), done))
    own = trimmed_mean(served, done)
    known = np.isfinite(own)
    spread = max(cross_spread(own[trusted]), spread_before)
    least = np.maximum(own, np.minimum(felt, 0.0))
    steady = steadier(steadiness(logs + loads["operations"], trusted))
    waiting = np.maximum(felt - least, 0.0) * np.clip(steady / STEADY_LOG_RATIO, 0.0, 1.0)
    waiting *= min(1.0, spread / WAITING_LOG_RATIO)
    # Latency may contradict that one is slow, it does not make one fast.
    believed = np.maximum(felt + cross_spread(felt[trusted]), np.minimum(least, 0.0))
    excess = np.where(known, np.minimum(least, believed) + waiting, felt)
    variance = np.where(known, batch_variance(served, done), batch_variance(latency))
    return Ahead(excess, slower, variance, latency, rest, excused, relative, steady, to_all)


def _middle(logs: FloatArray, trusted: BoolArray) -> FloatArray:
    """The median of the trusted members of `logs` (C, T) at each tick, (T,)."""
    return row_median(np.where(trusted[:, None], logs, np.nan).T)


def _excused(rest: FloatArray, doubt: FloatArray, trusted: BoolArray) -> FloatArray:
    """The part of `rest` (C, T) that `doubt` excuses: as much as brings a component to its peers' middle.

    By one share for all its ticks in doubt, so that it varies as before.
    """
    centre = row_median(np.where(trusted, trimmed_mean(rest), np.nan)[None, :])[0]
    part = np.where(np.isfinite(rest) & (doubt > 0.0), doubt, np.nan)
    ahead = trimmed_mean(np.where(np.isfinite(part), rest, np.nan)) - np.nan_to_num(centre)
    mean = trimmed_mean(part)
    share = np.divide(ahead, mean, out=np.zeros_like(ahead), where=mean > 0.0)
    excused: FloatArray = np.nan_to_num(part) * np.clip(np.nan_to_num(share), 0.0, 1.0)[:, None]
    return excused


def slower_alike(slower: FloatArray, loads: Loads) -> FloatArray:
    """By how much others that have a load like one's own in this window are slower, their middle; (C,).

    A job's load, or its cache misses, may take longer than all that was seen before: its members are slow
    together. 0 where it is harmless, where fewer than MIN_OTHERS have such a load, and of the fast ones.
    """
    together = np.zeros_like(slower)
    if "operations" not in loads:
        return together
    usual = [(row_median(loads[name]), range_) for name, range_ in ALIKE.items() if name in loads]
    for row in np.flatnonzero(slower > HARMLESS_LOG_RATIO).tolist():
        alike = np.isfinite(slower)
        for amounts, range_ in usual:
            alike &= np.abs(amounts - amounts[row]) <= range_
        alike[row] = False
        if alike.sum() >= MIN_OTHERS:
            middle = float(np.median(slower[alike]))
            together[row] = middle if middle > HARMLESS_LOG_RATIO else 0.0
    return together


def _reference(above: FloatArray, trusted: BoolArray, usual: float) -> tuple[FloatArray, BoolArray]:
    """The reference of each at each tick, (C, T), and where that is the `usual` level for want of peers: of
    MIN_OTHERS that have I/O, and of one that is trusted.
    """
    present, peers = np.isfinite(above), leave_one_out_median(above, trusted)
    few = present.sum(axis=0)[None, :] - present < MIN_OTHERS
    alone = (few | ~np.isfinite(peers)) & np.isfinite(usual)
    return np.where(alone, usual, peers), alone
