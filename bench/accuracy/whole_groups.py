"""Whole groups that become slow at once: `python -m bench.accuracy.whole_groups [DIR]`, a table in Markdown.

DIR is that of `bench.accuracy.perseus`. Every host is a group. As it is, each warning is a false one; then
all of its drives are slowed from 60 % of its time on (in the closed loop their throughput is divided by the
same factor), and the warning on the group must come after that.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench.accuracy.injected import Case, judged, settings_for, slowed
from bench.accuracy.perseus import SETTINGS, delay_text, grids_of, observed_minutes
from bench.machine import machine
from laggard_aggregator.detect import LEVEL_OF_GROUPS
from laggard_aggregator.offline.sample_grid import Grid

ONSET = 0.6
FACTORS = (1.3, 1.5, 2.0, 3.0)


def warnings(grid: Grid) -> list[float]:
    """Times at which a warning on the whole group began."""
    begun, stood = list[float](), False
    for each in judged(grid, settings_for("laggard", grid)):
        stands = LEVEL_OF_GROUPS in each.levels and bool(each.straggler[each.levels.index(LEVEL_OF_GROUPS)])
        if stands and not stood:
            begun.append(each.end)
        stood = stands
    return begun


def row(grids: Sequence[Grid], factor: float, loop: str) -> str:
    """A line of the table."""
    found, delays = 0, []
    case = Case("", factor, closed=loop == "closed", onset=ONSET)
    for grid in grids:
        changed, onset = slowed(grid, case, range(len(grid.components)))
        after = [at for at in warnings(changed) if at > onset]
        found += bool(after)
        if after:
            delays.append(observed_minutes(grid, onset, after[0]))
    return f"| {factor:g} times, {loop} loop | {found} of {len(grids)} | {delay_text(delays)} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.accuracy.whole_groups", description=__doc__.split("\n")[0]
    )
    parser.add_argument("directory", type=Path, nargs="?", default=Path("../shared/data/perseus_failslow"))
    directory: Path = parser.parse_args().directory
    grids = grids_of(directory)
    false = [warnings(grid) for grid in grids]
    days = sum(grid.blocks.size for grid in grids) * SETTINGS.shift_seconds / 86400.0
    warned = sum(map(len, false))
    print(f"as they are: {warned} warnings in {days:.1f} days of samples, {len(grids)} hosts\n")
    slowed_from = f"all drives of a host slower from {ONSET:.0%} of its time on"
    print(f"| {slowed_from} | warned of | delay, min: median / p90 / max |")
    print("|---|---|---|")
    for factor in FACTORS:
        for loop in ("open", "closed"):
            print(row(grids, factor, loop), flush=True)
    print(f"\n{machine('numpy')}")


if __name__ == "__main__":
    main()
