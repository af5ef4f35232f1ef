"""Servers whose disks are all slow: `python -m bench.accuracy.splits`, a table in Markdown.

Members differ for good by a lognormal factor. In each cell the rate of healthy groups that are split (of
3,000), and of groups with one server 3 times slower in which that server is named (of 1,000): `find_split`
on one window, without the detector's own test that the group is not one of peers, which lowers both.
"""

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.escalation import Level
from laggard_aggregator.detect.interface import Verdicts
from laggard_aggregator.detect.split import Split, find_split

LAYOUTS = ((2, 2), (2, 3), (2, 4), (2, 5), (2, 6), (3, 4), (4, 4), (16, 4), (2, 32))
SIGMAS = (0.03, 0.1, 0.25)
FACTOR = 3.0
HEALTHY, SLOW = 3000, 1000


def split_of(observed: NDArray[np.float64], servers: int) -> Split | None:
    """The split of a group of servers with as many disks each."""
    names = tuple(f"oss-{n}" for n in range(servers))
    ones, every = np.ones(observed.size), np.ones(observed.size, dtype=np.bool_)
    level = Level("node", names, np.repeat(np.arange(servers), observed.size // servers))
    return find_split(Verdicts(every, ~every, ones, ones, observed, ones), (level,))


def cell(rng: np.random.Generator, servers: int, disks: int, sigma: float) -> str:
    """The two rates of a layout."""
    false = named = 0
    for _ in range(HEALTHY):
        false += split_of(np.exp(sigma * rng.standard_normal(servers * disks)), servers) is not None
    for _ in range(SLOW):
        observed = np.exp(sigma * rng.standard_normal(servers * disks))
        observed[:disks] *= FACTOR
        split = split_of(observed, servers)
        named += split is not None and split.value == "oss-0"
    return f"{false / HEALTHY:.2%} / {named / SLOW:.0%}"


def main() -> None:
    """Prints the table."""
    rng = np.random.default_rng(1)
    print("| servers x disks | " + " | ".join(f"noise {sigma:.0%}" for sigma in SIGMAS) + " |")
    print("|---|" + "---|" * len(SIGMAS))
    for servers, disks in LAYOUTS:
        cells = " | ".join(cell(rng, servers, disks, sigma) for sigma in SIGMAS)
        print(f"| {servers} x {disks} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
