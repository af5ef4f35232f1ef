"""Sensitivity of accuracy to each constant: `python -m bench.accuracy.constant_sensitivity [DIR]`.

A table in Markdown. Each of those TRIED is moved by itself, the others at their defaults, over the drives of
bench.accuracy.perseus; window F1 by cluster, as no constant may hang on one of them.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bench.accuracy.perseus import (
    Drive,
    Result,
    cluster_of,
    delay_text,
    grids_of,
    judgements,
    result_of,
    truth_of,
)
from bench.machine import machine
from laggard_aggregator.detect.laggard import detector as laggard
from laggard_aggregator.detect.laggard import evidence, expected, load, load_curve, spread, thresholds
from laggard_aggregator.detect.registry import make_detector
from laggard_aggregator.offline.sample_grid import Grid

MODULES = (evidence, expected, laggard, load, load_curve, spread, thresholds)
TRIED: Mapping[str, Sequence[Any]] = {
    "HARMLESS_LOG_RATIO": (0.12, 0.16),
    "NOISE_STD_ERRORS": (2.0, 4.0),
    "MAX_NOISE_VARIANCE_RATIO": (2.0, 9.0),
    "TAILS": (np.array([1.2, 1.05]), np.array([1.3, 1.15])),
    "MIN_LONE_SHARE": (0.75, 0.95),
    "MAX_YOUNG": (1.0, 1.12),
    "CROSS_TO_OWN_RATIO": (1.4, 2.0),
    "PRIOR_VALUES": (6.0, 24.0),
    "MAX_MEAN_SQUARE_RATIO": (1.5, 3.0),
    "MAX_WINDOW_SPREADS": (6.0, 12.0),
    "OUTLIER_SPREADS": (2.5, 4.0),
    "CLEAR_SCORE": (1.0, 1.5),
    "RECOVERY_SCORE": (0.2, 0.4),
    "RECOVERY_STD_ERRORS": (3.0, 5.0),
    "MEMORY_WINDOWS": (16.0, 64.0),
    "RIDGE": (0.3, 6.0),
    "SUSPECT_SHARE": (0.4, 0.6),
    "BUSY_LOG_RATIO": (float(np.log(1.1)), float(np.log(1.3))),
    "RECENT_SECONDS": (450.0, 1800.0),
    "CURVE_LOG_RATIO": (0.05, 0.12),
    "FLATNESS": (0.3, 3.0),
    "COMMON_WEIGHT": (0.3, 3.0),
    "SURE_SAMPLES": (5.0, 20.0),
}


@contextmanager
def changed(parts: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """The constants at other values while the block lasts: where, name, value."""
    before = [(where, name, getattr(where, name)) for where, name, _ in parts]
    try:
        for where, name, value in parts:
            setattr(where, name, value)
        yield
    finally:
        for where, name, value in before:
            setattr(where, name, value)


def row(name: str, grids: Sequence[Grid], truth: set[Drive]) -> str:
    """The table's line for the constants as they stand."""
    whole = list(judgements(grids, {}, make_detector))
    total = result_of(grids, iter(whole), truth)
    windows = []
    for cluster in sorted({cluster_of(grid.group) for grid in grids}):
        mine = [grid for grid in grids if grid.group.startswith(f"{cluster}__")]
        part = result_of(mine, (j for j in whole if j.group.startswith(f"{cluster}__")), truth)
        windows.append(f"{part.windows.f1:.3f}")
    return f"| {name} | {cells(total, windows)} |"


def cells(total: Result, windows: Sequence[str]) -> str:
    """Drives, drive-days, windows by cluster, delay, healthy drives alarmed."""
    whole = f"{total.drives.f1:.3f}", f"{total.days.f1:.3f}"
    return " | ".join((*whole, *windows, delay_text(total.delays), str(len(total.alarmed))))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.accuracy.constant_sensitivity", description=__doc__
    )
    parser.add_argument("directory", type=Path, nargs="?", default=Path("../shared/data/perseus_failslow"))
    directory: Path = parser.parse_args().directory
    truth = truth_of(directory)
    grids = grids_of(directory)
    clusters = sorted({cluster_of(grid.group) for grid in grids})
    heads = ("constants", "drives F1", "days F1", *(f"windows F1, {c}" for c in clusters))
    print(f"| {' | '.join((*heads, 'delay, min: median / p90 / max', 'healthy alarmed'))} |")
    print("|---" * (len(heads) + 2) + "|")
    print(row("defaults", grids, truth), flush=True)
    for name, values in TRIED.items():
        modules = [module for module in MODULES if hasattr(module, name)]
        default = getattr(modules[0], name)
        for value in values:
            with changed([(module, name, value) for module in modules]):
                print(row(f"`{name}` {value} (not {default})", grids, truth), flush=True)
    print(f"\n{machine('numpy', 'scipy')}")


if __name__ == "__main__":
    main()
