"""What each part of the detector is worth: `python -m bench.accuracy.ablation [DIR]`, a table in Markdown.

One part at a time is left out, over the labelled drives of `bench.accuracy.perseus` and some cases of
`bench.accuracy.injected` (`--seed`, with `--trials` drives each).
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.accuracy import injected
from bench.accuracy.constant_sensitivity import changed
from bench.accuracy.perseus import Drive, delay_text, grids_of, judgements, result_of, truth_of
from bench.machine import machine
from laggard_aggregator.detect import peers
from laggard_aggregator.detect.laggard import (
    detector,
    evidence,
    expected,
    load,
    load_curve,
    spread,
    thresholds,
)
from laggard_aggregator.detect.registry import make_detector
from laggard_aggregator.offline.sample_grid import Grid

LEFT_OUT: Sequence[tuple[str, Sequence[tuple[Any, str, Any]]]] = (
    ("nothing", ()),
    ("spikes count in the mean", ((peers, "SPIKE_SHARE", 0.0),)),
    ("half of the samples left out, as in a median", ((peers, "SPIKE_SHARE", 0.5),)),
    ("young groups like others", ((spread, "MAX_YOUNG", 1.0),)),
    ("slow again and again is slow at times", ((evidence, "MIN_ONSETS", math.inf),)),
    ("clear faults wait for the third window", ((detector, "CLEAR_SCORE", math.inf),)),
    ("no harmless difference", ((detector, "HARMLESS_LOG_RATIO", 0.0),)),
    ("no margin for a component's own noise", ((detector, "NOISE_STD_ERRORS", 0.0),)),
    (
        "load explains nothing, nor recent load",
        (
            (load, "RIDGE", 1e12),
            (load_curve, "FLATNESS", 1e12),
            (expected, "CURVE_LOG_RATIO", 1e-6),
            (load_curve, "MAX_UNKNOWN_LOG_RATIO", 0.0),
        ),
    ),
    ("more load than known excuses nothing", ((load_curve, "MAX_UNKNOWN_LOG_RATIO", 0.0),)),
    ("recent load explains nothing", ((load.LoadModel, "explained_by_recent", lambda _, log: 0.0 * log),)),
    ("one window may count without bound", ((detector, "MAX_WINDOW_SPREADS", 1e6),)),
    ("outliers stay references", ((detector, "OUTLIER_SPREADS", 1e6),)),
    ("suspects are no majority", ((detector, "SUSPECT_SHARE", 1e6),)),
    ("stragglers count in the spread", ((spread, "MAX_MEAN_SQUARE_RATIO", 1e6),)),
    ("the mean alone, not the faster half", ((thresholds, "TAILS", np.array([1.25, 1e6])),)),
    ("the faster half alone, not the mean", ((thresholds, "TAILS", np.array([1e6, 1.1])),)),
    ("tails as of normal noise", ((thresholds, "TAILS", np.ones(2)),)),
    ("confirmation does not lower thresholds", ((thresholds, "CONFIRMED_SHARES", np.ones((5, 2, 6))),)),
    ("no least share for a lone window", ((thresholds, "MIN_LONE_SHARE", 0.0),)),
    (
        "spread and its growth known from the first window",
        ((spread, "PRIOR_VALUES", 1e6), (spread, "MAX_YOUNG", 1.0)),
    ),
    ("no recovery before averages fall", ((detector, "RECOVERY_SCORE", -math.inf),)),
)
CASES = (
    "1.5 times from the middle on, open",
    "3 times, every third",
    "3 times for 5 of",
    "group of 5, 2 slow",
)


def row(name: str, grids: Sequence[Grid], truth: set[Drive], seed: int, trials: int) -> str:
    """A line of the table."""
    found = result_of(grids, judgements(grids, {}, make_detector), truth)
    cells = [name, f"{found.days.f1:.3f}", f"{found.windows.f1:.3f}", delay_text(found.delays)]
    cells.append(str(len(found.alarmed)))
    healthy = [injected.healthy_part(grid, truth) for grid in grids]
    for number, case in enumerate(injected.CASES):
        if case.name.startswith(CASES):
            rng = np.random.default_rng((seed, number))
            injected.forget_untouched()
            done = injected.run(replace(case, trials=trials), healthy, "laggard", rng)
            named = [one for of in done.found.values() for one in of]
            cells.append(f"{sum(named)} of {len(named)}, {done.blamed}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.accuracy.ablation", description=__doc__.split("\n")[0]
    )
    parser.add_argument("directory", type=Path, nargs="?", default=Path("../shared/data/perseus_failslow"))
    parser.add_argument("--seed", type=int, default=2, help="draws drives and hosts")
    parser.add_argument("--trials", type=int, default=12, help="drives a case (default %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only parts with TEXT in their name")
    asked = parser.parse_args()
    truth = truth_of(asked.directory)
    grids = grids_of(asked.directory)
    heads = ("left out", "days F1", "windows F1", "delay, min: median / p90 / max", "healthy alarmed")
    print(f"| {' | '.join((*heads, *(f'{case} ...: named, others blamed' for case in CASES)))} |")
    print("|---" * (len(heads) + len(CASES)) + "|")
    for name, parts in LEFT_OUT:
        if asked.only in name:
            with changed(parts):
                print(row(name, grids, truth, asked.seed, asked.trials), flush=True)
    print(f"\n{machine('numpy', 'scipy')}")


if __name__ == "__main__":
    main()
