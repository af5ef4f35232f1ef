"""Log ratios of components to their trusted peers, without what load and waiting explain."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, FloatArray
from laggard_aggregator.detect.laggard.load import LoadModel, steadiness
from laggard_aggregator.detect.laggard.spread import batch_variance, cross_spread
from laggard_aggregator.detect.peers import leave_one_out_median, trimmed_mean

WAITING_LOG_RATIO = 0.45
"""Log ratio of waiting, beyond service time, that counts as much as one spread of service times."""
STEADY_LOG_RATIO = 0.3
"""Log by which a queue is steadier than one of clients' requests, from which waiting counts in full."""

Loads = Mapping[str, FloatArray]


class Ahead(NamedTuple):
    """How much slower components are than their trusted peers, in log ratios; of each (C,) or by tick (C, T).

    `excess` (C,): the evidence, and `variance` (C,), its squared standard error by its own course.
    `felt` (C,): of the metric, less the part that load explains, and `rest` (C, T), the same by tick;
    `latency` (C, T): with that part. `loads` (C, T): loads relative to the same peers. `steady` (C,): average
    `steadiness` with this window, None where waiting is not told from service.
    """

    excess: FloatArray
    felt: FloatArray
    variance: FloatArray
    latency: FloatArray
    rest: FloatArray
    loads: Loads
    steady: FloatArray | None = None


def ahead_of_peers(
    logs: FloatArray,
    service: FloatArray | None,
    loads: Loads,
    trusted: BoolArray,
    *,
    model: LoadModel,
    recent_part: FloatArray,
    spread_before: float,
    steadier: Callable[[FloatArray], FloatArray],
) -> Ahead:
    """How much slower components are than their `trusted` (C,) peers.

    `logs`, `service` (C, T): logs of the metric and of service time, if known; `loads`: of loads. `model`:
    how latency goes with them. `recent_part` (C,): of latencies, explained by recent load. `spread_before`:
    of the windows before. `steadier`: the average of how steady each queue is, given this window's (C,).

    Where service times are known the evidence is theirs, as far as latencies do not contradict it by more
    than a spread, and waiting beyond it in units of WAITING_LOG_RATIO, as far as its queue is steadier than
    clients' requests make one: these make a component wait, in busy groups many times over, but do not make
    it slow.
    """
    latency = logs - leave_one_out_median(logs, trusted)
    relative = {name: load - leave_one_out_median(load, trusted) for name, load in loads.items()}
    rest = latency - model.explained(relative, latency.shape) - recent_part[:, None]
    felt = trimmed_mean(rest)
    if service is None:
        return Ahead(felt, felt, batch_variance(rest), latency, rest, relative)
    served = service - leave_one_out_median(service, trusted)
    done = np.exp(loads["operations"])
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
    return Ahead(excess, felt, variance, latency, rest, relative, steady)
