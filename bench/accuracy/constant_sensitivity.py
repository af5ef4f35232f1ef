"""Sensitivity of accuracy to each constant: `python -m bench.accuracy.constant_sensitivity [DIR]`.

A table in Markdown. Every constant is moved by itself, the others at their defaults, over the drives of
bench.accuracy.perseus; window F1 by cluster, as no constant may hang on one of them.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from bench.accuracy.perseus import COLUMNS, SETTINGS, Drive, Result, Tally, judgements, result_of, truth_of
from laggard_aggregator.detect.laggard import budget, evidence, spread
from laggard_aggregator.detect.laggard import detector as laggard
from laggard_aggregator.detect.registry import make_detector
from laggard_aggregator.offline.run import read_grids
from laggard_aggregator.offline.sample_grid import Grid

TRIED: Sequence[tuple[ModuleType, str, Sequence[Any]]] = (
    (laggard, "HARMLESS_LOG_RATIO", (0.11, 0.15)),
    (laggard, "NOISE_STD_ERRORS", (2.0, 4.0)),
    (laggard, "MAX_NOISE_VARIANCE_RATIO", (2.0, 9.0)),
    (budget, "TAILS", (np.array([1.2, 1.05]), np.array([1.3, 1.15]))),
    (budget, "MIN_LONE_SHARE", (0.75, 0.95)),
    (evidence, "MAX_YOUNG", (1.0, 1.12)),
    (spread, "CROSS_TO_OWN_RATIO", (1.4, 2.0)),
    (spread, "PRIOR_VALUES", (6.0, 24.0)),
    (spread, "MAX_MEAN_SQUARE_RATIO", (1.5, 3.0)),
    (laggard, "MAX_WINDOW_SPREADS", (6.0, 12.0)),
    (laggard, "OUTLIER_SPREADS", (2.5, 4.0)),
    (laggard, "SUSPECT_SCORE", (0.6, 0.9)),
    (laggard, "CLEAR_SCORE", (1.0, 1.5)),
    (laggard, "RECOVERY_SCORE", (0.2, 0.4)),
    (laggard, "RECOVERY_STD_ERRORS", (3.0, 5.0)),
    (evidence, "MEMORY_WINDOWS", (16.0, 64.0)),
)


def row(name: str, grids: Sequence[Grid], truth: set[Drive]) -> str:
    """The table's line for the constants as they stand."""
    whole = list(judgements(grids, {}, make_detector))
    total = result_of(grids, iter(whole), truth)
    windows = []
    for cluster in sorted({grid.group.split("__")[0] for grid in grids}):
        mine = [grid for grid in grids if grid.group.startswith(f"{cluster}__")]
        part = result_of(mine, (j for j in whole if j.group.startswith(f"{cluster}__")), truth)
        windows.append(f1(part.windows))
    return f"| {name} | {cells(total, windows)} |"


def f1(tally: Tally) -> str:
    """F1 to three places."""
    return f"{2 * tally.right / max(2 * tally.right + tally.wrong + tally.missed, 1):.3f}"


def cells(total: Result, windows: Sequence[str]) -> str:
    """Drives, drive-days, windows by cluster, delay, healthy drives alarmed."""
    delay = total.delay()
    return " | ".join((f1(total.drives), f1(total.days), *windows, delay, str(len(total.alarmed))))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.accuracy.constant_sensitivity", description=__doc__
    )
    parser.add_argument("directory", type=Path, nargs="?", default=Path("../shared/data/perseus_failslow"))
    directory: Path = parser.parse_args().directory
    truth = truth_of(directory)
    grids = read_grids(sorted(directory.glob("*__*.csv*")), COLUMNS, SETTINGS)
    clusters = sorted({grid.group.split("__")[0] for grid in grids})
    heads = ("constants", "drives F1", "days F1", *(f"windows F1, {c}" for c in clusters))
    print(f"| {' | '.join((*heads, 'delay, min: median / p90 / max', 'healthy alarmed'))} |")
    print("|---" * (len(heads) + 2) + "|")
    print(row("defaults", grids, truth), flush=True)
    for module, name, values in TRIED:
        default = getattr(module, name)
        for value in values:
            setattr(module, name, value)
            print(row(f"`{name}` {value} (not {default})", grids, truth), flush=True)
        setattr(module, name, default)


if __name__ == "__main__":
    main()
