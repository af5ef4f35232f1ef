"""How healthy drives wander: `python -m bench.accuracy.noise_growth [DIR]`, a table in Markdown.

The spread of averages of a healthy drive's log ratio to its peers over 1 to 32 windows of five minutes, in
units of one window's, next to length ** -1/4; and one window's spread over the standard error that its own
course tells.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.accuracy.perseus import METRIC, SETTINGS, cluster_of, grids_of, truth_of
from bench.machine import machine
from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.detect.laggard.evidence import SCALE_WINDOWS
from laggard_aggregator.detect.laggard.spread import batch_variance, standard_error, typical_variance
from laggard_aggregator.detect.peers import faster_half_mean, leave_one_out_median, trimmed_mean
from laggard_aggregator.offline.sample_grid import Grid


@dataclass(frozen=True, slots=True)
class Ratios:
    """A host's log ratios to the healthy drives by kind of evidence and window: `excess` (KINDS, C, W).

    `load` (C, W): the same of throughput, as plain means. `windows` (W,): the windows' numbers. `error`: the
    standard error of one window, typical of the healthy drives.
    """

    excess: FloatArray
    load: FloatArray
    windows: NDArray[np.int_]
    error: float


def ratios(grid: Grid, healthy: Sequence[bool]) -> Ratios:
    """Of the windows in which each drive has samples for more than half of the time."""
    peers = np.array(healthy)
    latency, load = np.log(grid.metrics[METRIC]), np.log(next(iter(grid.load.values())))
    excess, loads, windows, errors = [], [], [], []
    for at in range(0, latency.shape[1], SETTINGS.shift_samples):
        window, of_load = (each[:, at : at + SETTINGS.shift_samples] for each in (latency, load))
        deviations = window - leave_one_out_median(window, peers)
        if np.isfinite(deviations).sum(axis=1).min() > SETTINGS.shift_samples // 2:
            excess.append(np.stack([trimmed_mean(deviations), faster_half_mean(deviations)]))
            loads.append(np.nanmean(of_load - leave_one_out_median(of_load, peers), axis=1))
            windows.append(at // SETTINGS.shift_samples)
            errors.append(typical_variance(batch_variance(deviations[peers])))
    error = float(np.sqrt(np.nanmean(errors)))
    return Ratios(np.stack(excess, axis=2), np.stack(loads, axis=1), np.array(windows), error)


def averages(excess: FloatArray) -> FloatArray:
    """The spread of moving averages over SCALE_WINDOWS windows; (K,)."""
    total = np.cumsum(np.pad(excess, ((0, 0), (1, 0))), axis=1)
    found = []
    for length in SCALE_WINDOWS.astype(int):
        means = (total[:, length:] - total[:, :-length]) / length
        found.append(float(np.sqrt(np.mean(means**2))))
    return np.array(found)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy.noise_growth", description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?", default=Path("../shared/data/perseus_failslow"))
    directory: Path = parser.parse_args().directory
    truth = truth_of(directory)
    rows: dict[str, list[FloatArray]] = defaultdict(list)
    for grid in grids_of(directory):
        healthy = [(grid.group, name) not in truth for name in grid.components]
        found = ratios(grid, healthy)
        spread = averages(found.excess[0][np.array(healthy)])
        kind = f"{cluster_of(grid.group)}, {'healthy hosts' if all(healthy) else 'with faulty drives'}"
        rows[kind].append(np.array([spread[0], spread[0] / found.error, *(spread / spread[0])]))
    lengths = [f"{length:g} windows" for length in SCALE_WINDOWS]
    print(f"| hosts | spread of one window | over its standard error | {' | '.join(lengths)} |")
    print("|---" * (3 + len(lengths)) + "|")
    for kind, spreads in sorted(rows.items()):
        print(f"| {kind} | {' | '.join(f'{value:.2f}' for value in np.median(spreads, axis=0))} |")
    law = " | ".join(f"{value:.2f}" for value in standard_error(SCALE_WINDOWS))
    print(f"| length ** -1/4 | | | {law} |\n\n{machine('numpy', 'scipy')}")


if __name__ == "__main__":
    main()
