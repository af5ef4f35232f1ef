"""References for delays: `python -m bench.accuracy.observer [DIR]`, a table in Markdown.

Two reference observers know who is healthy, and how large and how persistent noise is in the cluster. They
weigh windows by generalised least squares, which is best for normal noise: a component's log ratio to its
peers, less what its own load explains, since the onset and up to PAST windows before it.

* One knows when the fault begins. Two kinds of evidence have half of the budget of false alarms each, and
  a fault is detected when one exceeds its quantile in one window, without confirmation.
* The other does not. It weighs the last 1 to 32 windows against those before them, as if each length were
  the right one. Its thresholds are those that `laggard` has of chance, for each kind and length, with a
  spread that is known; it has no harmless limit. Its alarms take k of 2k - 1 windows, a second clear one
  counts double.

The rows are the labelled drives of `bench.accuracy.perseus` and the cases of `bench.accuracy.injected` that
last, the same trials for the same `--seed`, with the noise that the drives really had. Windows in which a
drive has samples for less than half of the time are left out, and the nights between evenings are no gap.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from scipy import special
from scipy.linalg import cho_factor, cho_solve, toeplitz

from bench.accuracy.injected import BUDGET_DRIVES, CASES, always, healthy_part, injected_faults
from bench.accuracy.noise_growth import Ratios, ratios
from bench.accuracy.perseus import SETTINGS, cluster_of, delay_text, grids_of, truth_of
from bench.machine import machine
from laggard_aggregator.alarms.alarms import Persistence
from laggard_aggregator.detect.interface import FloatArray, Verdicts
from laggard_aggregator.detect.laggard.detector import CLEAR_SCORE
from laggard_aggregator.detect.laggard.evidence import FASTER_HALF, HARMLESS_LOG_RATIO, KINDS, SCALE_WINDOWS
from laggard_aggregator.detect.laggard.thresholds import (
    CONFIRMED_SHARES,
    MIN_LONE_SHARE,
    TAILS,
    chance_per_window,
)

SINCE, PAST = 64, 32
"""Windows since the onset, the last ones, and before it that count."""

HEADER = (
    "| fault | the onset is known, no confirmation: detected, delay in min: median / p90 / max "
    "| unknown onset, confirmed |\n|---|---|---|"
)


def unexplained(found: Ratios, healthy: Sequence[bool]) -> FloatArray:
    """The log ratios (KINDS, C, W), less what changes of a component's own load explain on this host.

    About the healthy ones' median in each window: the mean of the faster half is below 0 among equals.
    """
    known = np.array(healthy)
    load = found.load - found.load.mean(axis=1, keepdims=True)
    excess = found.excess - found.excess.mean(axis=2, keepdims=True)
    slopes = (excess * load)[:, known].sum(axis=(1, 2)) / (load[known] ** 2).sum()
    without: FloatArray = found.excess - slopes[:, None, None] * load
    return without - np.median(without[:, known], axis=1, keepdims=True)


def autocovariance(noise: FloatArray) -> FloatArray:
    """Of `noise` (KINDS, C, W) at lags of 0 to SINCE + PAST - 1 windows; (KINDS, lags)."""
    lags, windows = range(SINCE + PAST), noise.shape[2]
    products = [(noise[..., : windows - lag] * noise[..., lag:]).mean(axis=(1, 2)) for lag in lags]
    return np.stack(products, axis=1)


class Observer:
    """What is known of a cluster: `covariance` (KINDS, lags) of noise.

    `shares` (SCALE_WINDOWS,): of the quantile, one of CONFIRMED_SHARES, for alarms that are confirmed.
    """

    def __init__(self, covariance: FloatArray, shares: FloatArray) -> None:
        self._covariance = covariance
        self._weights = cache(self._solve)
        chance = chance_per_window(SETTINGS, BUDGET_DRIVES)
        self._level = -special.ndtri(chance / KINDS)
        self._thresholds = -special.ndtri(chance) * TAILS[:, None] * np.maximum(shares, MIN_LONE_SHARE)

    def delay_from_known_onset(self, log_ratios: FloatArray, onset: int) -> float:
        """Minutes of windows from `onset` to detection, infinite = never; `log_ratios` (KINDS, W)."""
        past = min(onset, PAST)
        for end in range(onset + 1, log_ratios.shape[1] + 1):
            since = min(end - onset, SINCE)
            window = np.hstack([log_ratios[:, onset - past : onset], log_ratios[:, end - since : end]])
            if any(own @ self._weights(kind, past, since) >= self._level for kind, own in enumerate(window)):
                return _minutes(end - onset)
        return np.inf

    def delay_confirmed(self, log_ratios: FloatArray, onset: int) -> float:
        """The same to the first alarm that stands after `onset`, which is not known to the observer."""
        persistence = Persistence(SETTINGS.confirm)
        yes = np.ones(1, dtype=np.bool_)
        for end in range(1, log_ratios.shape[1] + 1):
            score = np.array([self._score(log_ratios[:, :end])])
            faster = log_ratios[FASTER_HALF, end - 1]
            clear = (score >= CLEAR_SCORE) & (faster >= HARMLESS_LOG_RATIO)
            verdicts = Verdicts(yes, score >= 1.0, score, score, score, score, clear=clear)
            persistence.update([""], float(end), verdicts)
            if end > onset and persistence.faulty[0]:
                return _minutes(end - onset)
        return np.inf

    def _score(self, log_ratios: FloatArray) -> float:
        """The largest share of a threshold, of both kinds and all lengths up to now."""
        shares = []
        for at, since in enumerate(SCALE_WINDOWS.astype(int).tolist()):
            past = min(log_ratios.shape[1] - since, PAST)
            if past >= 0:
                for kind, own in enumerate(log_ratios[:, -since - past :]):
                    shares.append(own @ self._weights(kind, past, since) / self._thresholds[kind, at])
        return float(max(shares))

    def _solve(self, kind: int, past: int, since: int) -> FloatArray:
        """Weights of as many windows before and since the onset; their sum of noise has a spread of 1."""
        step = np.repeat([0.0, 1.0], [past, since])
        solved = cho_solve(cho_factor(toeplitz(self._covariance[kind, : past + since])), step)
        weights: FloatArray = solved / np.sqrt(step @ solved)
        return weights


def _minutes(windows: int) -> float:
    return windows * SETTINGS.shift_seconds / 60.0


def cell(delays: Sequence[float]) -> str:
    """How many are detected, and the delays of these, as in `bench.accuracy.injected`."""
    found = [each for each in delays if np.isfinite(each)]
    return f"{len(found)} of {len(delays)}, {delay_text(found)}"


def row_of(name: str, observed: Sequence[tuple[Observer, FloatArray, int]]) -> str:
    """A line of the table; `observed`: by whom, log ratios (KINDS, W), and the onset."""
    known = [each.delay_from_known_onset(log_ratios, onset) for each, log_ratios, onset in observed]
    confirmed = [each.delay_confirmed(log_ratios, onset) for each, log_ratios, onset in observed]
    return f"| {name} | {cell(known)} | {cell(confirmed)} |"


def lines(directory: Path, seed: int, *, independent: bool) -> Iterator[str]:
    """The table."""
    truth, grids = truth_of(directory), grids_of(directory)
    noise, of_drives = defaultdict(list), []
    for grid in grids:
        healthy = [(grid.group, name) not in truth for name in grid.components]
        log_ratios, cluster = unexplained(ratios(grid, healthy), healthy), cluster_of(grid.group)
        noise[cluster].append(autocovariance(log_ratios[:, healthy]))
        of_drives += [(cluster, fine, log_ratios[:, c]) for c, fine in enumerate(healthy)]
    shares = CONFIRMED_SHARES[SETTINGS.confirm - 1][int(independent)]
    observers = {cluster: Observer(np.mean(of, axis=0), shares) for cluster, of in noise.items()}
    yield HEADER
    for name, kind in (("labelled drives", False), ("healthy drives, unchanged: false alarms", True)):
        yield row_of(name, [(observers[c], own, 0) for c, fine, own in of_drives if fine == kind])
    whole = [healthy_part(grid, truth) for grid in grids]
    for number, case in enumerate(CASES):
        if case.pattern is always and case.factor > 1.0:
            observed = []
            for each in injected_faults(case, whole, np.random.default_rng((seed, number))):
                healthy = [c not in each.rows for c in range(len(each.grid.components))]
                found = ratios(each.changed, healthy)
                log_ratios = unexplained(found, healthy)
                onset = int(np.searchsorted(found.windows, int(case.onset * each.grid.blocks.size)))
                observer = observers[cluster_of(each.grid.group)]
                observed += [(observer, log_ratios[:, row], onset) for row in each.rows]
            yield row_of(case.name, observed)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.accuracy.observer", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("directory", type=Path, nargs="?", default=Path("../shared/data/perseus_failslow"))
    parser.add_argument("--seed", type=int, default=1, help="draws drives, hosts and days, as for `injected`")
    parser.add_argument(
        "--independent", action="store_true", help="confirmed with the lower thresholds for independent noise"
    )
    asked = parser.parse_args()
    for line in lines(asked.directory, asked.seed, independent=asked.independent):
        print(line, flush=True)
    print(f"\n{machine('numpy', 'scipy')}")


if __name__ == "__main__":
    main()
