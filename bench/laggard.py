"""How fast the detector `laggard` judges and how its cost grows: `python -m bench.laggard [--large]`."""

import argparse
import math
import time
import tracemalloc
from dataclasses import replace
from itertools import pairwise

import numpy as np

from bench.machine import machine
from bench.peer_groups import HISTORY, INTERVAL_SECONDS, SHAPES, WINDOW, PeerGroup
from laggard_aggregator.detect.interface import FloatArray, GroupWindow
from laggard_aggregator.detect.laggard.detector import LaggardDetector
from laggard_aggregator.detect.settings import DetectSettings

SIZES = (100, 1_000, 10_000)
LARGE_SIZES = (*SIZES, 100_000)
SHIFT = 30
WARM_WINDOWS = 6
"""After so many windows averages of several lengths, spreads and the slope over load have been learned."""
WINDOWS = 8


def windows(shape: str, components: int, *, loaded: bool) -> list[GroupWindow]:
    """Windows of 60 samples, each 30 after the one before; `loaded`: with operations, size and read share."""
    peers = PeerGroup(shape, components, seed=17)
    rng = np.random.default_rng(29)
    spans = SHIFT * (WARM_WINDOWS + WINDOWS) + WINDOW - SHIFT
    values = peers.samples(spans)
    load: dict[str, FloatArray] = {"operations": 1.0 + rng.poisson(40.0, values.shape).astype(np.float64)}
    if loaded:
        load["request_bytes"] = rng.gamma(9.0, 16_384.0, values.shape)
        load["read_share"] = rng.beta(2.0, 2.0, values.shape)
    found = []
    for at in range(0, spans - WINDOW + 1, SHIFT):
        span = slice(at, at + WINDOW)
        window = replace(peers.slice(values[:, :HISTORY]), metrics={"await": values[:, span]}, history=0)
        start = at * INTERVAL_SECONDS
        end = start + WINDOW * INTERVAL_SECONDS
        of_load = {name: array[:, span] for name, array in load.items()}
        found.append(replace(window, start=start, end=end, load=of_load))
    return found


def seconds_a_window(shape: str, components: int, *, loaded: bool) -> list[float]:
    """CPU seconds of each window after the detector has warmed up."""
    detector = LaggardDetector(DetectSettings(), "await")
    spent = []
    for window in windows(shape, components, loaded=loaded):
        begin = time.process_time()
        detector.observe(window)
        spent.append(time.process_time() - begin)
    return spent[WARM_WINDOWS:]


def state_bytes(components: int) -> float:
    """Memory that a detector keeps for each component between windows, bytes."""
    some = windows("homogeneous", components, loaded=True)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        detector = LaggardDetector(DetectSettings(), "await")
        for window in some:
            detector.observe(window)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / components


def table(sizes: tuple[int, ...]) -> None:
    """Prints windows a second for every shape and size, and the growth with size."""
    print("| group | load | components | windows/s | ms a window (min / median / max) |")
    print("|---|---|---:|---:|---:|")
    growth = []
    for shape in SHAPES:
        for loaded in (False, True):
            least = {}
            for components in sizes:
                spent = seconds_a_window(shape, components, loaded=loaded)
                least[components] = min(spent)
                middle = float(np.median(spent))
                times = " / ".join(f"{s * 1e3:.1f}" for s in (min(spent), middle, max(spent)))
                what = "operations, size, read share" if loaded else "operations"
                print(f"| {shape} | {what} | {components:,} | {1 / middle:,.1f} | {times} |", flush=True)
            for small, big in [(sizes[1], sizes[-1]), *pairwise(sizes[1:])]:
                exponent = math.log(least[big] / least[small]) / math.log(big / small)
                growth.append(f"| {shape} | {what} | {small:,} | {big:,} | {exponent:.2f} |")
    print("\nGrowth of one window's least time:\n")
    print("| group | load | from | to | exponent |\n|---|---|---:|---:|---:|")
    print("\n".join(dict.fromkeys(growth)))
    print(f"\nKept between windows: {state_bytes(sizes[-1]):.0f} bytes a component.")


def main() -> None:
    """Runs what the options ask for."""
    parser = argparse.ArgumentParser(prog="python -m bench.laggard", description=__doc__)
    parser.add_argument("--large", action="store_true", help="100,000 components too")
    options = parser.parse_args()
    print(machine("numpy", "scipy") + "; CPU time on one core\n")
    table(LARGE_SIZES if options.large else SIZES)


if __name__ == "__main__":
    main()
