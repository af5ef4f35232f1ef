"""How soon a fault can be told at all: `python -m bench.accuracy.observer [DIR]`, a table in Markdown.

An observer is told when a fault begins, who is healthy, and how large and how persistent noise is in the
cluster. He weighs the windows since the onset as is best for normal noise (generalised least squares), a
component's log ratio to its peers less what its own load explains; the sooner of the two kinds of evidence
counts. A fault is told when it exceeds the quantile of the default budget once, without confirmation.

The rows are the labelled drives of `bench.accuracy.perseus` and the cases of `bench.accuracy.injected` that
last, the same trials for the same `--seed`, with the noise that the drives really had: what the observer
misses there, no detector finds at the same false alarms unless it is lucky or noise is not normal.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import special
from scipy.linalg import toeplitz

from bench.accuracy.injected import BUDGET_DRIVES, CASES, Case, always, drawn, healthy_part
from bench.accuracy.noise_growth import Ratios, ratios
from bench.accuracy.perseus import COLUMNS, SETTINGS, delay_text, truth_of
from bench.machine import machine
from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.detect.laggard.budget import chance_per_window
from laggard_aggregator.detect.laggard.evidence import KINDS
from laggard_aggregator.offline.run import read_grids
from laggard_aggregator.offline.sample_grid import Grid

LAGS = 64
"""Windows over which noise is known to persist; of more windows since the onset the last so many count."""

HEADER = "| fault | told | delay, min: median / p90 / max |\n|---|---|---|"


def cluster_of(group: str) -> str:
    """The first part of a host's name."""
    return group.split("__", maxsplit=1)[0]


def unexplained(found: Ratios, healthy: Sequence[bool]) -> FloatArray:
    """The log ratios (KINDS, C, W) less what each component's own changes of load explain on this host."""
    known = np.array(healthy)
    load = found.load - found.load.mean(axis=1, keepdims=True)
    excess = found.excess - found.excess.mean(axis=2, keepdims=True)
    slopes = (excess * load)[:, known].sum(axis=(1, 2)) / (load[known] ** 2).sum()
    without: FloatArray = found.excess - slopes[:, None, None] * load
    return without


def autocovariance(noise: FloatArray) -> FloatArray:
    """Of (KINDS, C, W), at lags of 0 to LAGS - 1 windows; (KINDS, LAGS)."""
    away = noise - np.median(noise, axis=1, keepdims=True)
    windows = away.shape[2]
    return np.stack(
        [(away[..., : windows - lag] * away[..., lag:]).mean(axis=(1, 2)) for lag in range(LAGS)], axis=1
    )


Weights = Sequence[Sequence[FloatArray]]
"""By kind and number of windows less 1: weights whose sum of log ratios has a spread of 1."""


def best_weights(covariance: FloatArray) -> Weights:
    """By generalised least squares, from (KINDS, LAGS)."""
    solved = [
        [np.linalg.solve(toeplitz(of[:n]), np.ones(n)) for n in range(1, LAGS + 1)] for of in covariance
    ]
    return [[each / np.sqrt(each.sum()) for each in of] for of in solved]


def delay(log_ratios: FloatArray, weights: Weights) -> float:
    """Minutes of the windows until the fault is told; `log_ratios` (KINDS, W) since the onset."""
    level = -special.ndtri(chance_per_window(SETTINGS, BUDGET_DRIVES))
    for end in range(1, log_ratios.shape[1] + 1):
        begin = max(end - LAGS, 0)
        sums = [log_ratios[kind, begin:end] @ weights[kind][end - begin - 1] for kind in range(KINDS)]
        if max(sums) >= level:
            return end * SETTINGS.shift_seconds / 60.0
    return np.inf


def trials(
    case: Case, grids: Sequence[Grid], weights: Mapping[str, Weights], seed: tuple[int, int]
) -> list[float]:
    """The observer's delays in the trials of `bench.accuracy.injected`."""
    rng, delays = np.random.default_rng(seed), []
    for _ in range(case.trials):
        grid, rows = drawn(case, [grid for grid in grids if grid.group.startswith(case.cluster)], rng)
        healthy = [c not in rows for c in range(len(grid.components))]
        found = ratios(grid, healthy)
        since = found.windows >= int(case.onset * grid.blocks.size)
        faulty = unexplained(found, healthy)[:, rows][..., since] + np.log(case.factor)
        delays += [delay(faulty[:, row], weights[cluster_of(grid.group)]) for row in range(len(rows))]
    return delays


def row_of(name: str, delays: Sequence[float]) -> str:
    """A line of the table; delays are of the faults that are told, as in `bench.accuracy.injected`."""
    told = [each for each in delays if np.isfinite(each)]
    return f"| {name} | {len(told)} of {len(delays)} | {delay_text(told)} |"


def lines(directory: Path, seed: int) -> Iterator[str]:
    """The table."""
    truth = truth_of(directory)
    grids = read_grids(sorted(directory.glob("*__*.csv*")), COLUMNS, SETTINGS)
    noise, of_drives = defaultdict(list), []
    for grid in grids:
        healthy = [(grid.group, name) not in truth for name in grid.components]
        log_ratios, cluster = unexplained(ratios(grid, healthy), healthy), cluster_of(grid.group)
        noise[cluster].append(autocovariance(log_ratios[:, healthy]))
        of_drives += [(cluster, fine, log_ratios[:, c]) for c, fine in enumerate(healthy)]
    weights = {cluster: best_weights(np.mean(of, axis=0)) for cluster, of in noise.items()}
    yield HEADER
    for name, kind in (
        ("labelled drives", False),
        ("healthy drives, as if slow from the first window", True),
    ):
        delays = [delay(own, weights[cluster]) for cluster, fine, own in of_drives if fine == kind]
        yield row_of(name, delays)
    whole = [healthy_part(grid, truth) for grid in grids]
    for number, case in enumerate(CASES):
        if case.pattern is always and case.factor > 1.0:
            yield row_of(case.name, trials(case, whole, weights, (seed, number)))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.accuracy.observer", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("directory", type=Path, nargs="?", default=Path("../shared/data/perseus_failslow"))
    parser.add_argument("--seed", type=int, default=1, help="draws drives, hosts and days, as for `injected`")
    asked = parser.parse_args()
    for line in lines(asked.directory, asked.seed):
        print(line, flush=True)
    print(f"\n{machine('numpy', 'scipy')}")


if __name__ == "__main__":
    main()
