"""Training of `cdf` on fault-free windows: how far each component deviates (Intrepid 4.2.1)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from laggard_aggregator.detect.cdf import TRAINING_OPTIONS
from laggard_aggregator.detect.cdf.binned_group import CdfOptions, binned, options_of
from laggard_aggregator.detect.cdf.distributions import Population, numerators
from laggard_aggregator.detect.interface import FloatArray, GroupWindow
from laggard_aggregator.detect.registry import FaultFree, Trained, Training

_BLOCK_PAIRS = 1 << 20


def learn(windows: FaultFree, options: Mapping[str, Any]) -> Trained:
    """For each component the largest deviation from its peers in any window, by group and metric."""
    chosen = options_of(options)
    thresholds: dict[str, dict[str, dict[str, float]]] = {}
    for window in windows():
        if not isinstance(window, GroupWindow):
            continue
        for metric, values in window.metrics.items():
            deviation = largest_deviation(values, window.history, chosen)
            known = thresholds.setdefault(window.group, {}).setdefault(metric, {})
            for component in np.flatnonzero(np.isfinite(deviation)):
                name = window.components[component]
                known[name] = max(known.get(name, 0.0), float(deviation[component]))
    return Trained(thresholds)


TRAINING = Training(learn, TRAINING_OPTIONS)


def largest_deviation(values: FloatArray, history: int, options: CdfOptions) -> FloatArray:
    """For each component (C,) the smallest threshold, in bins, that leaves `values` (C, H + W) normal.

    That is the distance which no more than half of its pair distances exceed. The trained threshold is the
    largest of these over all fault-free windows. NaN for absent components, and for all with too few peers.
    Computes all pairs, in blocks of bounded memory.
    """
    deviation = np.full(len(values), np.nan)
    group = binned(values, history, options)
    if group is not None:
        deviation[group.live] = _middle_distances(group.members)
    return deviation


def _middle_distances(members: Population) -> FloatArray:
    """For each member (n,) the least distance within which at least half of the others lie."""
    middle = np.empty(members.size)
    rank = members.size // 2  # of the sorted row, whose first entry is the member itself
    rows = max(1, _BLOCK_PAIRS // members.size)
    for own in members.classes:
        for at in range(0, len(own.members), rows):
            block = own.vectors[at : at + rows]
            distances = np.empty((len(block), members.size))
            for other in members.classes:
                numerator, denominator = numerators(
                    block, own.samples, other.vectors, other.samples, members.cumulative
                )
                distances[:, other.members] = numerator / denominator
            middle[own.members[at : at + rows]] = np.partition(distances, rank, axis=1)[:, rank]
    return middle
