"""Log ratios of components to their trusted peers, without what load and waiting explain."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, FloatArray
from laggard_aggregator.detect.laggard.expected import Expected
from laggard_aggregator.detect.laggard.load import steadiness
from laggard_aggregator.detect.laggard.spread import batch_variance, cross_spread
from laggard_aggregator.detect.peers import leave_one_out_median, trimmed_mean

WAITING_LOG_RATIO = 0.45
"""Log ratio of waiting, beyond service time, that counts as much as one spread of service times."""
STEADY_LOG_RATIO = 0.3
"""Log by which a queue is steadier than one of clients' requests, from which waiting counts in full."""

MIN_REFERENCES = 2


class Usual(NamedTuple):
    """The group's `level` over a long time, a log, and its `spread` from tick to tick."""

    level: float
    spread: float


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
    expected: Expected,
    usual: Usual,
    recent_part: FloatArray,
    spread_before: float,
    steadier: Callable[[FloatArray], FloatArray],
) -> Ahead:
    adjusted = logs - expected.log_time
    reference = reference_level(adjusted, trusted, usual.level)
    relative = {name: load - leave_one_out_median(load, trusted) for name, load in loads.items()}
    latency = adjusted - reference
    rest = latency - recent_part[:, None]
    alone = np.isfinite(adjusted) & ~np.isfinite(reference_level(adjusted, trusted, np.nan))
    doubt = expected.doubt + np.where(alone, usual.spread, 0.0)
    rest = rest - np.clip(rest, 0.0, doubt)
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


def reference_level(adjusted: FloatArray, trusted: BoolArray, usual: float) -> FloatArray:
    """The middle of the trusted others at each tick (C, T); `usual` where fewer than MIN_REFERENCES have a value."""
    others = (np.isfinite(adjusted) & trusted[:, None]).sum(axis=0)[None, :] - (
        np.isfinite(adjusted) & trusted[:, None]
    )
    return np.where(others >= MIN_REFERENCES, leave_one_out_median(adjusted, trusted), usual)
