"""How fast `cdf` judges, beside all pairs with scipy: `python -m bench.cdf [--large] [--day]`."""

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from scipy.spatial.distance import cdist

from bench.machine import machine
from bench.peer_groups import HISTORY, SHAPES, WINDOW, PeerGroup
from laggard_aggregator.detect.cdf.binned_group import BinnedGroup, CdfOptions, binned
from laggard_aggregator.detect.cdf.detector import CdfDetector
from laggard_aggregator.detect.cdf.distributions import numerators
from laggard_aggregator.detect.cdf.pivots import Majority, far_majority
from laggard_aggregator.detect.interface import BoolArray, FloatArray, GroupWindow
from laggard_aggregator.detect.settings import DetectSettings

SIZES = (100, 1_000, 4_096)
LARGE_SIZES = (10_000, 100_000)
MULTIPLES = (1.0, 1.25, 1.5, 2.0)
TRAINING_WINDOWS = 96
DAY_SAMPLES = 5_760
DAY_GROUP = 3_072


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds: least, median and most of several runs."""

    least: float
    median: float
    most: float

    def __str__(self) -> str:
        return " / ".join(f"{seconds * 1e3:.1f}" for seconds in (self.least, self.median, self.most))


def measured(run: Callable[[], object], at_least: int = 3, seconds: float = 0.4) -> Spread:
    """Runs several times: until `seconds` are over, and `at_least` times."""
    spent: list[float] = []
    while len(spent) < at_least or (sum(spent) < seconds and len(spent) < 25):
        begin = time.process_time()
        run()
        spent.append(time.process_time() - begin)
    return Spread(min(spent), float(np.median(spent)), max(spent))


def detector(window: GroupWindow, thresholds: FloatArray) -> CdfDetector:
    """A detector with these thresholds, one a component."""
    known = dict(zip(window.components, thresholds.tolist(), strict=True))
    return CdfDetector(DetectSettings(detector="cdf", thresholds={"await": known}), "await")


def median_distances(group: BinnedGroup, rng: np.random.Generator, peers: int = 256) -> FloatArray:
    """Each member's median distance to a sample of its peers: training's statistic at the cost of a bench."""
    own = group.members.classes[0]
    some = own.vectors[rng.choice(len(own.vectors), min(peers, len(own.vectors)), replace=False)]
    found = np.empty(len(own.vectors))
    for at in range(0, len(found), 4096):
        rows = own.vectors[at : at + 4096]
        numerator, samples = numerators(rows, own.samples, some, own.samples, group.members.cumulative)
        middle = np.partition(numerator, len(some) // 2, axis=1)[:, len(some) // 2]
        found[at : at + 4096] = middle / samples
    return found


def prepared(window: GroupWindow) -> BinnedGroup:
    """The binned group of a window that has one."""
    group = binned(window.metrics["await"], window.history, CdfOptions())
    if group is None:
        raise ValueError("too few members")
    return group


def trained(windows: Iterator[GroupWindow], rng: np.random.Generator) -> FloatArray:
    """The largest deviation of each component over `windows`."""
    largest: FloatArray = np.maximum.reduce([median_distances(prepared(window), rng) for window in windows])
    return largest


def both_forms(group: BinnedGroup) -> tuple[FloatArray, FloatArray]:
    """The members' CDFs, and their sorted bin indexes over WinSize: the L1 distance of either is the same."""
    own = group.members.classes[0]
    if group.members.cumulative:
        steps = np.arange(own.samples)
        indexes = np.stack([(own.vectors <= step).sum(axis=1) for step in steps], axis=1)
        counts = own.vectors
    else:
        indexes = own.vectors
        counts = np.stack([(indexes <= i).sum(axis=1) for i in range(int(indexes.max()))], axis=1)
    return counts / own.samples, indexes / own.samples


def all_pairs(vectors: FloatArray, thresholds: FloatArray, rows: int = 512) -> BoolArray:
    """The verdicts by every distance, in blocks of rows that stay in the cache."""
    beyond = np.empty(len(vectors), dtype=np.int64)
    for at in range(0, len(vectors), rows):
        distances = cdist(vectors[at : at + rows], vectors, "cityblock")
        far = distances > thresholds[at : at + rows, np.newaxis]
        beyond[at : at + rows] = np.count_nonzero(far, axis=1)
    return 2 * beyond > len(vectors) - 1


def between_steps(thresholds: FloatArray) -> FloatArray:
    """Thresholds halfway between two steps of a distance, where floating-point rounding decides nothing."""
    return (np.floor(thresholds * WINDOW) + 0.5) / WINDOW


def judge(shape: str, components: int) -> tuple[list[str], Spread]:
    """The rows of one group's table, and how long one window takes at trained thresholds."""
    rng = np.random.default_rng(11)
    peers = PeerGroup(shape, components, seed=17)
    own = trained((peers.window() for _ in range(TRAINING_WINDOWS)), rng)
    window = peers.window()
    group = prepared(window)
    middle = float(np.median(median_distances(group, rng)))
    cases = [(f"{m:g} x median", np.full(components, m * middle)) for m in MULTIPLES]
    lines = []
    for name, thresholds in [*cases, ("trained", own)]:
        cells, whole = case(window, group, between_steps(thresholds))
        lines.append("| " + " | ".join([shape, f"{components:,}", name, *cells]) + " |")
    return lines, whole


def case(window: GroupWindow, group: BinnedGroup, thresholds: FloatArray) -> tuple[list[str], Spread]:
    """One row's figures, and how long the window takes. Raises AssertionError where verdicts differ."""
    everyone = np.ones(len(thresholds), dtype=np.bool_)
    judging = detector(window, thresholds)

    def pruned() -> Majority:
        return far_majority(group.members, thresholds, everyone, CdfOptions().pair_budget)

    found, stage = pruned(), measured(pruned)
    whole, before = measured(lambda: judging.observe(window)), measured(lambda: prepared(window))
    cells = [f"{found.far.mean():.1%}", f"{1 / whole.median:,.0f}", str(whole)]
    cells += [f"{found.computed / everyone.size**2:.2%}", f"{np.count_nonzero(~found.decided):,}"]
    if everyone.size > max(SIZES):
        return [*cells, *["-"] * 6], whole
    for vectors in both_forms(group):
        if not np.array_equal(all_pairs(vectors, thresholds), found.far):
            raise AssertionError("verdicts differ from all pairs")
        pairs = measured(partial(all_pairs, vectors, thresholds), seconds=0.0)
        cells.append(f"{pairs.least * 1e3:.1f}")
        cells.append(f"{(before.least + pairs.least) / whole.least:.0f}")
        cells.append(f"{pairs.least / stage.least:.0f}")
    return cells, whole


def table(sizes: tuple[int, ...]) -> None:
    """Prints windows a second for every shape and size, and the growth with size."""
    print("Times are how often all pairs take as long, least time against least time: the whole window, and")
    print("what comes after binning. The verdicts of all three are the same.\n")
    print(
        "| group | components | threshold | anomalous | windows/s | ms a window (min / median / max) "
        "| pairs computed | undecided | all pairs, CDFs: ms | times, window | times, pairs "
        "| all pairs, sorted: ms | times, window | times, pairs |\n" + "|---|" + "---:|" * 13
    )
    growth = []
    for shape in SHAPES:
        spent = {}
        for components in sizes:
            lines, spent[components] = judge(shape, components)
            print("\n".join(lines), flush=True)
        large = [n for n in sizes if n >= SIZES[1]]
        for small, big in [(large[0], large[-1]), *(pairwise(large) if len(large) > 2 else ())]:
            exponent = math.log(spent[big].least / spent[small].least) / math.log(big / small)
            growth.append(f"| {shape} | {small:,} | {big:,} | {exponent:.2f} |")
    print("\nGrowth of one window's least time at trained thresholds:\n")
    print("| group | from | to | exponent |\n|---|---:|---:|---:|\n" + "\n".join(growth))


def day() -> None:
    """Prints how long a day of 12,288 LUN attachments in four groups takes, 15 s samples of await."""
    rng = np.random.default_rng(11)
    total, windows, flagged, judged = 0.0, 0, 0, 0
    print("| group of 3,072 | windows | seconds | anomalous |\n|---|---:|---:|---:|")
    for shape in ("homogeneous", "four clusters", "bursty", "heavy-tailed"):
        peers = PeerGroup(shape, DAY_GROUP, seed=23)
        own = trained(_windows_of(peers, peers.samples(DAY_SAMPLES)), rng)
        today = peers.samples(DAY_SAMPLES)
        judging = detector(peers.window(), own)
        begin = time.process_time()
        verdicts = [judging.observe(window) for window in _windows_of(peers, today)]
        spent = time.process_time() - begin
        anomalous = sum(int(np.count_nonzero(v.anomalous)) for v in verdicts)
        here = sum(int(np.count_nonzero(v.judged)) for v in verdicts)
        print(f"| {shape} | {len(verdicts)} | {spent:.2f} | {anomalous / here:.2%} |", flush=True)
        total, windows = total + spent, windows + len(verdicts)
        flagged, judged = flagged + anomalous, judged + here
    print(f"| all four, a day | {windows} | {total:.2f} | {flagged / judged:.2%} |")


def _windows_of(peers: PeerGroup, values: FloatArray) -> Iterator[GroupWindow]:
    """Windows of 60 samples moved by 30 over `values` (components, samples), each with its history."""
    padded = np.pad(values, ((0, 0), (HISTORY, 0)), constant_values=np.nan)
    for start in range(0, values.shape[1] - WINDOW + 1, WINDOW // 2):
        yield peers.slice(padded[:, start : start + HISTORY + WINDOW])


def main() -> None:
    """Runs what the options ask for."""
    parser = argparse.ArgumentParser(prog="python -m bench.cdf", description=__doc__)
    parser.add_argument("--large", action="store_true", help="10,000 and 100,000 components too")
    parser.add_argument("--day", action="store_true", help="a day of 12,288 LUN attachments instead")
    options = parser.parse_args()
    print(machine("numpy", "scipy") + "; CPU time on one core\n")
    if options.day:
        day()
    else:
        table((*SIZES, *LARGE_SIZES) if options.large else SIZES)


if __name__ == "__main__":
    main()
