"""Load of components in classes of their peak, as Beacon's heat maps of nodes have it (NSDI '19, Fig. 10)."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.jobs.loads.heat_map import MAX_CELLS, LoadMap, Name, heat_map
from laggard_aggregator.jobs.loads.kinds import LoadKind
from laggard_aggregator.jobs.loads.load_days import MOST_CELLS, LoadDays
from laggard_aggregator.jobs.loads.roster import RosterNode, known_peaks, roster
from laggard_aggregator.settings.aggregator import PeakTable

CLASSES: Final = ("0-10 %", "10-50 %", "50-90 %", "above 90 %")
"""Shares of the peak; a limit belongs to the class below it."""
GAP: Final = -1
_LIMITS: Final = (0.1, 0.5, 0.9)
_MOST_STEPS: Final = 1440


@dataclass(frozen=True, slots=True)
class ComponentLoad:
    """Load of N components in T steps.

    `largest` (N,): largest rate of each, NaN without any. `peak` (N,): the rate that counts as its full load.
    `classes` (N, T): places in CLASSES, GAP where unknown. `time_share` (N, 4): share of the known steps in
    each class, NaN without any.
    """

    heat: LoadMap
    largest: FloatArray
    peak: FloatArray
    classes: NDArray[np.int8]
    time_share: FloatArray

    @property
    def mean(self) -> FloatArray:
        """Mean rate (N,) of the known steps, NaN without any."""
        known = ~np.isnan(self.heat.rates)
        count = known.sum(axis=1)
        sums = np.where(known, self.heat.rates, 0.0).sum(axis=1)
        mean: FloatArray = np.divide(sums, count, out=np.full(len(count), np.nan), where=count > 0)
        return mean


def component_load(
    directory: Path,
    kind: LoadKind,
    start: float,
    end: float,
    *,
    up: Collection[str] = (),
    peaks: Collection[PeakTable] = (),
    days: LoadDays | None = None,
) -> ComponentLoad:
    """The load in at most a day's number of minutes, or multiples of them; in quarters of hours of `days`
    where components times minutes are more than MOST_CELLS.

    The components are those of the archive in this time and, where the kind has nodes, those that are `up`
    now. `peaks`: known ones. The others have the largest rate that any of the kind reached within the time:
    by its own largest rate an idle one would be at its peak all the time. Raises ArchiveError, and
    ConfigError for too large a map.
    """
    nodes = roster(directory, kind.sources, start, end, components=not kind.has_nodes or bool(peaks))
    of_kind = {name: node for name, node in nodes.items() if node.roles & set(kind.roles)}
    names = _names(kind, of_kind, up)
    minutes = math.ceil((end - start) / 60.0)
    if days is not None and MOST_CELLS < len(names) * minutes <= MAX_CELLS:
        heat = days.load(kind, names, start, end)
    else:
        step = max(math.ceil(minutes / _MOST_STEPS), 1)
        heat = heat_map(directory, kind, names, start, end, step_minutes=step)
    known = ~np.isnan(heat.rates)
    largest = np.where(known, heat.rates, -np.inf).max(axis=1, initial=-np.inf)
    largest[~known.any(axis=1)] = np.nan
    reached = float(np.nanmax(largest)) if known.any() else 0.0
    given = known_peaks(kind, of_kind, peaks)
    peak = np.array([given.get(name, reached) for name in heat.components], dtype=np.float64)
    classes = load_classes(heat.rates, peak)
    return ComponentLoad(heat, largest, peak, classes, time_share(classes))


def _names(kind: LoadKind, nodes: Mapping[str, RosterNode], up: Collection[str]) -> set[Name]:
    if kind.has_nodes:
        return {(node, "") for node in {*nodes, *up}}
    return {
        (node, name)
        for node, entry in nodes.items()
        for source, name in entry.components
        if source in kind.sources
    }


def load_classes(rates: FloatArray, peak: FloatArray) -> NDArray[np.int8]:
    """Classes (N, T) of rates (N, T) by the peaks (N,); an idle component is in the lowest."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(rates == 0.0, 0.0, rates / peak[:, None])
    classes = np.searchsorted(_LIMITS, share).astype(np.int8)
    classes[np.isnan(rates)] = GAP
    return classes


def time_share(classes: NDArray[np.int8]) -> FloatArray:
    """Share (N, 4) of the known steps of each component by class."""
    counts = np.stack([(classes == at).sum(axis=1) for at in range(len(CLASSES))], axis=1).astype(np.float64)
    total = counts.sum(axis=1, keepdims=True)
    shares: FloatArray = np.divide(counts, total, out=np.full_like(counts, np.nan), where=total > 0)
    return shares
