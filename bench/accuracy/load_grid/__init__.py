"""Load and faults of simulated peer groups, and the detector's verdicts on them.

Shares no code, model or parameter with the detector and with the other simulations.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from bench.accuracy.load_grid import grid, maintenance, sizes, stops, together, uneven, variants
from bench.accuracy.load_grid.scenario import Scenario


def all_scenarios() -> Iterator[Scenario]:
    """Every scenario, in the order of the tables."""
    for kind in (grid, variants, sizes, uneven, maintenance, together, stops):
        yield from kind.scenarios()


def scenarios(pattern: str, *, quick: bool = False) -> list[Scenario]:
    """The scenarios whose name matches, or has a part that matches, `pattern`; of those of `--quick`."""
    known = (scenario for scenario in all_scenarios() if scenario.quick or not quick)
    return [s for s in known if fnmatchcase(s.name, pattern) or fnmatchcase(s.name, f"*{pattern}*")]
