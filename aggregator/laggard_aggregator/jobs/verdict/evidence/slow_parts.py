"""Components of one job that are slower than the job's others: by the daemon's detector, or Beacon's rules.

The detector needs 18 minutes and 4 components. `below_peak` and `below_peers` are the rules of Beacon
(NSDI '19, section 4.2), by rates alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.jobs.verdict import BELOW_PEAK, BELOW_PEERS, LAGGARD
from laggard_aggregator.jobs.verdict.analysis.slow_component import (
    LEAST_PEERS,
    PEERS_HOURS,
    below_peak,
    below_peers,
    slow_in_job,
)
from laggard_aggregator.jobs.verdict.evidence.component_series import READS, WRITES, ComponentSeries
from laggard_aggregator.jobs.verdict.evidence.minute_sums import MINUTE

_DIRECTIONS: Final = {"read": READS, "write": WRITES}
_MB: Final = 1e6


@dataclass(frozen=True, slots=True)
class SlowPart:
    """A slow component: `factor` times slower than `peers` others; `carried`: share of the bytes of all.

    `direction`: of the requests that a slow node waited for.
    """

    component: str
    layer: str
    factor: float
    peers: int
    carried: float
    text: str
    direction: str = ""


def slow_parts(series: ComponentSeries, method: str = LAGGARD) -> Iterator[SlowPart]:
    """Yields the slow components of one layer, each once; none below LEAST_PEERS components with I/O."""
    moved = np.nansum(series.rates, axis=1)
    rows = np.flatnonzero(moved > 0)
    if rows.size < LEAST_PEERS:
        return
    used = ComponentSeries(
        series.layer, tuple(series.names[row] for row in rows), series.start, series.sums[:, rows]
    )
    total = float(moved.sum())
    for name, (factor, text) in _JUDGES[method](used).items():
        carried = float(moved[series.names.index(name)]) / total
        yield SlowPart(name, series.layer, factor, rows.size - 1, carried, text)


def _by_detector(series: ComponentSeries) -> dict[str, tuple[float, str]]:
    by_name: dict[str, tuple[float, str]] = {}
    load = series.load()
    for direction, count in _DIRECTIONS.items():
        if np.nansum(series.sums[count]) <= 0:
            continue
        slow = slow_in_job(series.names, series.latencies(count), load, MINUTE)
        for name, factor in slow.items():
            if factor > by_name.get(name, (1.0, ""))[0]:
                others = f"the {len(series.names) - 1} other {series.layer}s of the job"
                by_name[name] = factor, f"its {direction}s took {factor:.1f} times as long as on {others}"
    return by_name


def _by_peak(series: ComponentSeries) -> dict[str, tuple[float, str]]:
    """The peak of a component is not known: it is the largest minute of any of them."""
    rates = np.nan_to_num(series.rates)
    peak = float(rates.max())
    slow = {}
    for row in below_peak(rates, np.full(len(rates), peak), MINUTE):
        own = float(np.median(rates[row][rates[row] > 0]))
        most = f"the peak of the job's {series.layer}s, {peak / _MB:.3g} MB/s"
        text = f"it stayed below 30 % of {most}, for an hour"
        slow[series.names[row]] = peak / own, text
    return slow


def _by_peers(series: ComponentSeries) -> dict[str, tuple[float, str]]:
    """The shortest of the rule's times in which a component is below its peers; no longer than the series."""
    rates: FloatArray = np.where(series.rates > 0, series.rates, np.nan)
    slow: dict[str, tuple[float, str]] = {}
    for hours in PEERS_HOURS:
        if hours > PEERS_HOURS[0] and hours * 3600 > rates.shape[1] * MINUTE:
            break
        peaks = np.nan_to_num(rates[:, -round(hours * 3600 / MINUTE) :]).max(axis=1)
        for row in below_peers(rates, MINUTE, hours):
            others = float(np.delete(peaks, row)[np.delete(peaks, row) > 0].mean())
            text = f"its peak in the last {hours:g} h was {peaks[row] / others:.0%} of the others' mean peak"
            slow.setdefault(series.names[row], (others / peaks[row], text))
    return slow


_JUDGES: Final = {LAGGARD: _by_detector, BELOW_PEAK: _by_peak, BELOW_PEERS: _by_peers}
