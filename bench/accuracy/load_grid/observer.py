"""What could be found in bursts at all: `python -m bench.accuracy.load_grid.observer`.

Of each ill member of the grid's `bursts` cells that `--quick` has: how many standard errors the mean of its
log times during the fault is beyond what an observer expects who knows the curve of latency over load, the
noise, and the member's usual times from before; and in how many windows it has new intervals with I/O: an
alarm takes k windows, and `laggard diagnose` names a component of which 2k - 1 more were slow than not.
"""

import argparse

import numpy as np

from bench.accuracy.load_grid import scenarios
from bench.accuracy.load_grid.device import CURVES, MOST_BUSY
from bench.accuracy.load_grid.scenario import Scenario, Seeds
from laggard_aggregator.detect.settings import DetectSettings

SERVICE_SECONDS = 0.006
"""Of the grid's requests, see `device.CONSTANT`."""


def seen(scenario: Scenario, number: int, seeds: Seeds) -> tuple[float, int, int]:
    """Standard errors beyond the expectation, intervals with I/O, and windows with some of these."""
    _, _, curve, _, noise = scenario.row.split("/")
    series = scenario.series(number, seeds)
    (fault,) = series.ill
    row, span = series.components.index(fault.component), series.columns(fault.begin, fault.end)
    operations = series.load["operations"][row]
    busy = operations * SERVICE_SECONDS / series.interval_seconds
    active = np.flatnonzero(operations > 0)
    expected = np.log(1000.0 * SERVICE_SECONDS * CURVES[curve](np.minimum(busy[active], MOST_BUSY)))
    beyond = np.log(series.latency[row, active]) - expected
    before, during = active < span.start, (active >= span.start) & (active < span.stop)
    count = int(during.sum())
    sigma = float(noise.rstrip("%")) / 100.0
    errors = float((beyond[during] - np.median(beyond[before])).sum() / (sigma * np.sqrt(max(count, 1))))
    return errors, count, np.unique(active[during] // scenario.windows.shift).size


def main() -> None:
    """Prints a line for the tuning and one for the reporting seeds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", metavar="N", type=int, default=4, help="tries (default %(default)s)")
    tries, confirm = parser.parse_args().seeds, DetectSettings().confirm
    ill = [scenario for scenario in scenarios("grid/bursts/*", quick=True) if scenario.column != "healthy"]
    kinds: tuple[Seeds, Seeds] = ("tuning", "reporting")
    for kind in kinds:
        rows = [seen(scenario, number, kind) for scenario in ill for number in range(tries)]
        errors, intervals, windows = (np.array(column) for column in zip(*rows, strict=True))
        few = ", ".join(
            f"{(windows < n).sum()} in fewer than {n} windows" for n in (confirm, 2 * confirm - 1)
        )
        print(
            f"{kind} seeds, {len(rows)} ill: at least {errors.min():.1f} standard errors; intervals with I/O "
            f"{intervals.min()} to {intervals.max()}, median {np.median(intervals):.0f}; with I/O {few}"
        )


if __name__ == "__main__":
    main()
