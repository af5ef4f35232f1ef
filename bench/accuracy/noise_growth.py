"""How healthy drives wander, and how soon a fault can be told: `python -m bench.accuracy.noise_growth [DIR]`.

Two tables in Markdown.

First the spread of averages of a healthy drive's log ratio to its peers over 1 to 32 windows of five minutes,
in units of one window's, next to length ** -1/4; and one window's spread over the standard error that its own
course tells. Then the delays of an observer who is told when a fault begins, how persistent the noise is and
how large, and sums the windows since with the weights that are best for it (generalised least squares): until
half of the faults exceed the quantile of the default budget, without confirmation. No detector that is not
told can be sooner at the same false alarms, if noise is normal.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import special
from scipy.linalg import toeplitz

from bench.accuracy.injected import BUDGET_DRIVES
from bench.accuracy.perseus import COLUMNS, METRIC, SETTINGS, delay_text, truth_of
from bench.machine import machine
from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.detect.laggard.budget import chance_per_window
from laggard_aggregator.detect.laggard.evidence import KINDS, SCALE_WINDOWS
from laggard_aggregator.detect.laggard.spread import batch_variance, standard_error, typical_variance
from laggard_aggregator.detect.peers import faster_half_mean, leave_one_out_median, trimmed_mean
from laggard_aggregator.offline.run import read_grids
from laggard_aggregator.offline.sample_grid import Grid


@dataclass(frozen=True, slots=True)
class Ratios:
    """Log ratios to the healthy drives of a host, by kind of evidence and window.

    Of these (KINDS, C, W), and of the `slow` ones (KINDS, S, W). `error`: the standard error of one window.
    """

    healthy: FloatArray
    slow: FloatArray
    error: float


def ratios(grid: Grid, slow: set[str]) -> Ratios:
    """Of the windows in which each drive has samples for more than half of the time."""
    logs = np.log(grid.metrics[METRIC])
    healthy = np.array([name not in slow for name in grid.components])
    excess, errors = [], []
    for at in range(0, logs.shape[1], SETTINGS.shift_samples):
        window = logs[:, at : at + SETTINGS.shift_samples]
        deviations = window - leave_one_out_median(window, healthy)
        if np.isfinite(deviations).sum(axis=1).min() > SETTINGS.shift_samples // 2:
            excess.append(np.stack([trimmed_mean(deviations), faster_half_mean(deviations)]))
            errors.append(typical_variance(batch_variance(deviations[healthy])))
    whole = np.stack(excess, axis=2)
    return Ratios(whole[:, healthy], whole[:, ~healthy], float(np.sqrt(np.nanmean(errors))))


LAGS = 64
"""Windows over which noise is known to persist, and the longest delay that is looked for."""
FACTORS = (1.2, 1.5, 2.0, 3.0)


def evidence_growth(healthy: Sequence[FloatArray]) -> FloatArray:
    """What a log ratio of 1 since 1 to LAGS windows exceeds noise by, in spreads; (LAGS,).

    `healthy`: log ratios (C, W) of the healthy drives of each host, by one kind of evidence.
    """
    covariances = []
    for rows in healthy:
        away = rows - np.median(rows, axis=0)
        windows = away.shape[1]
        covariances.append([(away[:, : windows - lag] * away[:, lag:]).mean() for lag in range(LAGS)])
    covariance = np.mean(covariances, axis=0)
    ones = (np.ones(n) for n in range(1, LAGS + 1))
    return np.array([np.sqrt(one @ np.linalg.solve(toeplitz(covariance[: one.size]), one)) for one in ones])


def least_minutes(log_ratios: FloatArray, growth: FloatArray) -> float:
    """Minutes until one of the kinds' `log_ratios` (KINDS,) exceeds the quantile of the budget.

    `growth` (KINDS, LAGS): its evidence, in spreads. Infinite beyond LAGS windows.
    """
    level = -special.ndtri(chance_per_window(SETTINGS, BUDGET_DRIVES))
    found = np.flatnonzero((log_ratios[:, None] * growth >= level).any(axis=0))
    return (float(found[0]) + 1.0) * SETTINGS.shift_seconds / 60.0 if found.size else np.inf


def in_time(minutes: float) -> str:
    """A delay as it is printed."""
    return f"{minutes:.0f}" if np.isfinite(minutes) else f"over {LAGS * SETTINGS.shift_seconds / 60.0:.0f}"


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
    clusters: dict[str, list[Ratios]] = defaultdict(list)
    for grid in read_grids(sorted(directory.glob("*__*.csv*")), COLUMNS, SETTINGS):
        slow = {drive for group, drive in truth if group == grid.group}
        found = ratios(grid, slow)
        spread = averages(found.healthy[0])
        cluster = grid.group.split("__")[0]
        clusters[cluster].append(found)
        kind = f"{cluster}, {'with faulty drives' if slow else 'healthy hosts'}"
        rows[kind].append(np.array([spread[0], spread[0] / found.error, *(spread / spread[0])]))
    lengths = [f"{length:g} windows" for length in SCALE_WINDOWS]
    print(f"| hosts | spread of one window | over its standard error | {' | '.join(lengths)} |")
    print("|---" * (3 + len(lengths)) + "|")
    for kind, spreads in sorted(rows.items()):
        print(f"| {kind} | {' | '.join(f'{value:.2f}' for value in np.median(spreads, axis=0))} |")
    law = " | ".join(f"{value:.2f}" for value in standard_error(SCALE_WINDOWS))
    print(f"| length ** -1/4 | | | {law} |\n")
    heads = [*(f"{factor:g} times" for factor in FACTORS), "labelled drives: median / 90 % / all"]
    print(f"| observer's delay, min | {' | '.join(heads)} |\n|---{'|---' * len(heads)}|")
    every = []
    for cluster, hosts in sorted(clusters.items()):
        growth = np.stack([evidence_growth([host.healthy[kind] for host in hosts]) for kind in range(KINDS)])
        delays = [least_minutes(np.full(KINDS, np.log(factor)), growth) for factor in FACTORS]
        slow_ones = np.concatenate([host.slow.mean(axis=2) for host in hosts], axis=1)
        every += [least_minutes(log_ratios, growth) for log_ratios in slow_ones.T]
        print(f"| {cluster} | {' | '.join(map(in_time, delays))} | |")
    print(f"| all | {' | ' * len(FACTORS)}{delay_text(every)} |\n\n{machine('numpy', 'scipy')}")


if __name__ == "__main__":
    main()
