"""How healthy drives wander: `python -m bench.accuracy.noise_growth [DIR]`, a table in Markdown.

The spread of averages of a healthy drive's log ratio to its peers over 1 to 32 windows of five minutes, in
units of one window's, next to length ** -1/4; and one window's spread over the standard error that its own
course tells.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from bench.accuracy.perseus import COLUMNS, METRIC, SETTINGS, truth_of
from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.detect.laggard.evidence import SCALE_WINDOWS
from laggard_aggregator.detect.laggard.spread import batch_variance, standard_error, typical_variance
from laggard_aggregator.detect.peers import leave_one_out_median, trimmed_mean
from laggard_aggregator.offline.run import read_grids
from laggard_aggregator.offline.sample_grid import Grid


def ratios(grid: Grid, slow: set[str]) -> tuple[FloatArray, float]:
    """The healthy drives' log ratios to each other (C, windows), and the standard error of one."""
    logs = np.log(grid.metrics[METRIC])
    healthy = np.array([name not in slow for name in grid.components])
    excess, errors = [], []
    for at in range(0, logs.shape[1], SETTINGS.shift_samples):
        window = logs[:, at : at + SETTINGS.shift_samples]
        deviations = (window - leave_one_out_median(window, healthy))[healthy]
        if np.isfinite(deviations).sum(axis=1).min() > SETTINGS.shift_samples // 2:
            excess.append(trimmed_mean(deviations))
            errors.append(typical_variance(batch_variance(deviations)))
    return np.stack(excess, axis=1), float(np.sqrt(np.nanmean(errors)))


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
    for grid in read_grids(sorted(directory.glob("*__*.csv*")), COLUMNS, SETTINGS):
        slow = {drive for group, drive in truth if group == grid.group}
        excess, error = ratios(grid, slow)
        spread = averages(excess)
        kind = f"{grid.group.split('__')[0]}, {'with faulty drives' if slow else 'healthy hosts'}"
        rows[kind].append(np.array([spread[0], spread[0] / error, *(spread / spread[0])]))
    lengths = [f"{length:g} windows" for length in SCALE_WINDOWS]
    print(f"| hosts | spread of one window | over its standard error | {' | '.join(lengths)} |")
    print("|---" * (3 + len(lengths)) + "|")
    for kind, found in sorted(rows.items()):
        print(f"| {kind} | {' | '.join(f'{value:.2f}' for value in np.median(found, axis=0))} |")
    law = " | ".join(f"{value:.2f}" for value in standard_error(SCALE_WINDOWS))
    print(f"| length ** -1/4 | | | {law} |")


if __name__ == "__main__":
    main()
