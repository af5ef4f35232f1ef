"""Load of forwarders in classes of their peak, as Beacon's heat map of forwarding nodes has it (NSDI '19)."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.jobs.access.principals import Principal
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.join.volumes import READ, SOURCES, WRITTEN
from laggard_aggregator.jobs.loads.heat_map import heat_map
from laggard_aggregator.jobs.loads.roster import known_peaks, roster
from laggard_aggregator.settings.aggregator import PeakTable

ROLE: Final = "forwarding"
CLASSES: Final = ("0-10 %", "10-50 %", "50-90 %", "above 90 %")
"""Shares of the peak; a limit belongs to the class below it."""
GAP: Final = -1
_LIMITS: Final = (0.1, 0.5, 0.9)
_MOST_STEPS: Final = 1440
_MINUTE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class ForwarderLoad:
    """Load of F forwarders in T steps from `start` (epoch seconds) on.

    `bytes_per_second` (F, T): read and written together, NaN in gaps. `largest` (F,): largest rate of each,
    NaN without any. `peak` (F,): the rate that counts as full load of each, in bytes a second. `classes` (F,
    T): places in CLASSES, GAP where unknown. `time_share` (F, 4): share of the known steps in each class, NaN
    without any.
    """

    forwarders: tuple[str, ...]
    start: float
    step_seconds: float
    bytes_per_second: FloatArray
    largest: FloatArray
    peak: FloatArray
    classes: NDArray[np.int8]
    time_share: FloatArray


def shown_forwarder_load(
    queries: JobQueries,
    principal: Principal,
    directory: Path,
    up: Collection[str],
    peaks: Collection[PeakTable] = (),
    *,
    start: float,
    end: float,
) -> ForwarderLoad | None:
    """The load in at most a day's number of minutes, or multiples of them; None where it may not be seen.

    The forwarders are those of the archive in this time, and those that are `up` now. `peaks`: known ones.
    """
    if not queries.sees_site(principal):
        return None
    nodes = roster(directory, SOURCES, start, end, components=bool(peaks))
    of_time = {name: node for name, node in nodes.items() if ROLE in node.roles}
    forwarders = sorted({*of_time, *up})
    minutes = math.ceil((end - start) / _MINUTE_SECONDS / _MOST_STEPS)
    step = _MINUTE_SECONDS * max(minutes, 1)
    known = known_peaks(of_time, peaks)
    return forwarder_load(directory, forwarders, start, end, step_seconds=step, peaks=known)


def forwarder_load(
    directory: Path,
    forwarders: Sequence[str],
    start: float,
    end: float,
    *,
    step_seconds: float = 60.0,
    peaks: Mapping[str, float] | None = None,
) -> ForwarderLoad:
    """The load from the archive's counters of the forwarders.

    `peaks`: known peaks in bytes a second. The others have the largest rate that any forwarder reached within
    the time: by its own largest rate an idle one would be at its peak all the time. Raises ArchiveError, and
    ConfigError for too large a map.
    """
    found = heat_map(directory, forwarders, start, end, step_seconds)
    rates = (found.amounts[READ] + found.amounts[WRITTEN]) / found.step_seconds
    known = ~np.isnan(rates)
    largest = np.where(known, rates, -np.inf).max(axis=1, initial=-np.inf)
    largest[~known.any(axis=1)] = np.nan
    reached = float(np.nanmax(largest)) if known.any() else 0.0
    given = peaks or {}
    peak = np.array([given.get(name, reached) for name in found.nodes], dtype=np.float64)
    classes = load_classes(rates, peak)
    return ForwarderLoad(
        found.nodes, found.start, found.step_seconds, rates, largest, peak, classes, time_share(classes)
    )


def load_classes(rates: FloatArray, peak: FloatArray) -> NDArray[np.int8]:
    """Classes (F, T) of rates (F, T) by the peaks (F,); an idle forwarder is in the lowest."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(rates == 0.0, 0.0, rates / peak[:, None])
    classes = np.searchsorted(_LIMITS, share).astype(np.int8)
    classes[np.isnan(rates)] = GAP
    return classes


def time_share(classes: NDArray[np.int8]) -> FloatArray:
    """Share (F, 4) of the known steps of each forwarder by class."""
    counts = np.stack([(classes == at).sum(axis=1) for at in range(len(CLASSES))], axis=1).astype(np.float64)
    total = counts.sum(axis=1, keepdims=True)
    shares: FloatArray = np.divide(counts, total, out=np.full_like(counts, np.nan), where=total > 0)
    return shares
