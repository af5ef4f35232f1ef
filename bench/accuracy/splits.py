"""Servers whose disks are all slow: `python -m bench.accuracy.splits`, a table in Markdown.

Members differ for good by a lognormal factor. In each cell the rate of healthy groups that are split (of
3,000), and of groups with one server 3 times slower in which that server is named (of 1,000): `find_split`
on one window, without the detector's own test that the group is not one of peers, which lowers both.

Then the same of groups in which members share a server, a model, a firmware and a pool, each at random: the
rate of healthy groups that are split along any of the four, and for each that it alone is named where one of
its values is 3 times slower.
"""

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import Level, Verdicts
from laggard_aggregator.detect.split import Split, find_split

LAYOUTS = ((2, 2), (2, 3), (2, 4), (2, 5), (2, 6), (3, 4), (4, 4), (16, 4), (2, 32))
SIGMAS = (0.03, 0.1, 0.25)
FACTOR = 3.0
HEALTHY, SLOW = 3000, 1000
SHARED = ("node", "model", "firmware", "pool")
SIZES = (8, 12, 16, 48)


def drawn_levels(rng: np.random.Generator, members: int) -> tuple[Level, ...]:
    """Two servers of the same size, and two values of each other attribute for members at random."""
    halves = np.repeat((0, 1), members // 2)
    return tuple(
        Level(name, (f"{name}-0", f"{name}-1"), halves if name == "node" else rng.permutation(halves))
        for name in SHARED
    )


def shared_cells(rng: np.random.Generator, members: int, sigma: float) -> list[str]:
    """The rate of healthy groups that are split, and for each of SHARED of those named right."""
    every = np.ones(members, dtype=np.bool_)

    def found(observed: NDArray[np.float64], levels: tuple[Level, ...]) -> Split | None:
        ones = np.ones(members)
        return find_split(Verdicts(every, ~every, ones, ones, observed, ones), levels)

    false = 0
    for _ in range(HEALTHY):
        observed = np.exp(sigma * rng.standard_normal(members))
        false += found(observed, drawn_levels(rng, members)) is not None
    rates = [f"{false / HEALTHY:.2%}"]
    for at, name in enumerate(SHARED):
        right = 0
        for _ in range(SLOW):
            levels = drawn_levels(rng, members)
            observed = np.exp(sigma * rng.standard_normal(members))
            observed[levels[at].of == 0] *= FACTOR
            split = found(observed, levels)
            right += split is not None and (split.attribute, split.value) == (name, f"{name}-0")
        rates.append(f"{right / SLOW:.1%}")
    return rates


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
    print(
        "\n| members, noise | healthy split | " + " | ".join(f"slow {name} named" for name in SHARED) + " |"
    )
    print("|---|---|" + "---|" * len(SHARED))
    for members in SIZES:
        for sigma in SIGMAS:
            rates = " | ".join(shared_cells(rng, members, sigma))
            print(f"| {members}, {sigma:.0%} | {rates} |", flush=True)


if __name__ == "__main__":
    main()
