"""What could be found at all: `python -m bench.accuracy.load_grid.observer`.

Of each ill member of the grid's `bursts` and `sizes` that `--quick` has: how many standard errors the mean of
its log times during the fault is beyond the expectation of an observer who knows the time that requests of
each size and direction take, the curve of latency over load, the noise, and the member's usual times before.
And in how many windows it has new intervals with I/O: an alarm takes k windows, and `laggard diagnose` names
a component of which 2k - 1 more were slow than not. Of each healthy member of `sizes`: how far the mean of an
hour is beyond the same expectation, as mean sizes do not tell whether the large requests were the reads.
"""

import argparse

import numpy as np

from bench.accuracy.load_grid import scenarios
from bench.accuracy.load_grid.device import CONSTANT, CURVES, MOST_BUSY, Array
from bench.accuracy.load_grid.scenario import Scenario, Seeds
from bench.accuracy.load_grid.series import Series
from bench.accuracy.load_grid.sizes import NOISE, SERVICES
from laggard_aggregator.detect.settings import DetectSettings

HOUR_INTERVALS = 120
PATTERNS = ("grid/bursts/*", "sizes/*")


def _beyond(scenario: Scenario, series: Series) -> Array:
    """Log times beyond the expectation (C, T), NaN without I/O; by the loads that the detector gets."""
    kind, _, place, *rest = scenario.row.split("/")
    curve, service = (rest[0], SERVICES[place]) if kind == "sizes" else (place, CONSTANT)
    operations = series.load["operations"]
    seconds = service.seconds(series.load["request_bytes"], series.load["read_share"])
    busy = np.minimum(operations * seconds / series.interval_seconds, MOST_BUSY)
    active = operations > 0
    latency = np.where(active, series.latency, np.nan)
    beyond: Array = np.log(latency) - np.log(1000.0 * seconds * CURVES[curve](busy))
    return beyond


def _noise(scenario: Scenario) -> float:
    """The log-deviation of an interval's mean."""
    last = scenario.row.split("/")[-1]
    return float(last.rstrip("%")) / 100.0 if last.endswith("%") else NOISE


def seen(scenario: Scenario, number: int, seeds: Seeds) -> tuple[float, int, int]:
    """Standard errors beyond the expectation, intervals with I/O, and windows with some of these."""
    series = scenario.series(number, seeds)
    (fault,) = series.ill
    row, span = series.components.index(fault.component), series.columns(fault.begin, fault.end)
    beyond = _beyond(scenario, series)[row]
    active = np.flatnonzero(np.isfinite(beyond))
    before, during = active[active < span.start], active[(active >= span.start) & (active < span.stop)]
    usual = np.median(beyond[before])
    errors = float((beyond[during] - usual).sum() / (_noise(scenario) * np.sqrt(max(during.size, 1))))
    return errors, int(during.size), np.unique(during // scenario.windows.shift).size


def healthy_hours(scenario: Scenario, number: int, seeds: Seeds) -> Array:
    """The mean of each hour of each member beyond its median (C, hours), a log; NaN without I/O."""
    beyond = _beyond(scenario, scenario.series(number, seeds))
    beyond -= np.nanmedian(beyond, axis=1, keepdims=True)
    hours = beyond.shape[1] // HOUR_INTERVALS
    parts = beyond[:, : hours * HOUR_INTERVALS].reshape(len(beyond), hours, HOUR_INTERVALS)
    known = np.isfinite(parts)
    means: Array = np.nansum(parts, axis=2) / np.where(known.any(axis=2), known.sum(axis=2), np.nan)
    return means


def main() -> None:
    """Prints a line for the tuning and one for the reporting seeds, of each kind."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", metavar="N", type=int, default=4, help="tries (default %(default)s)")
    tries, confirm = parser.parse_args().seeds, DetectSettings().confirm
    kinds: tuple[Seeds, Seeds] = ("tuning", "reporting")
    for pattern in PATTERNS:
        chosen = scenarios(pattern, quick=True)
        ill = [scenario for scenario in chosen if scenario.column != "healthy"]
        healthy = [s for s in chosen if s.column == "healthy" and s.row.startswith("sizes/")]
        for kind in kinds:
            rows = [seen(scenario, number, kind) for scenario in ill for number in range(tries)]
            errors, intervals, windows = (np.array(column) for column in zip(*rows, strict=True))
            few = ", ".join(
                f"{(windows < n).sum()} in fewer than {n} windows" for n in (confirm, 2 * confirm - 1)
            )
            print(
                f"{pattern}, {kind} seeds, {len(rows)} ill: at least {errors.min():.1f} standard errors; "
                f"intervals with I/O {intervals.min()} to {intervals.max()}, median "
                f"{np.median(intervals):.0f}; with I/O {few}"
            )
            for scenario in healthy:
                hours = np.concatenate([healthy_hours(scenario, n, kind).ravel() for n in range(tries)])
                most = np.exp(np.nanmax(hours))
                print(f"{scenario.name}, {kind} seeds: at most {most:.2f} times the expectation for an hour")


if __name__ == "__main__":
    main()
