"""Precision and recall of each rule of advice over labelled jobs: `python -m bench.jobs_advice`.

Each job is a program with or without each bad habit, by chance, with counters that are 5 % off and modes
found from its accesses. The label is the habit. Habits are drawn 13 % and more from the limits of the rules:
nearer than that, neither answer is wrong.
"""

import argparse
import secrets
import sys
from collections import Counter
from collections.abc import Iterator

import numpy as np

from bench.machine import machine
from laggard_aggregator.jobs.traces.io_modes import FileAccess, io_modes
from laggard_aggregator.jobs.verdict.analysis.advice import Footprint, advice

PRECISION, RECALL = 0.95, 0.85
HABITS = (
    *("shared file", "single process", "small writes", "small reads", "metadata rate", "opens"),
    *("amplification", "striping", "re-reads", "small files"),
)


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """A number between `low` and `high`, each factor equally likely."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def accesses(
    rng: np.random.Generator, habit: str, nodes: int, direction: str, volume: float
) -> Iterator[FileAccess]:
    """Who moves the bytes of one direction, with a little log of process 0 beside it."""
    processes = min(nodes, 200)
    if habit == "single process":
        yield FileAccess("0", "/result", direction, int(volume))
        return
    for rank in range(processes):
        name = "/shared.h5" if habit == "shared file" else f"/own/{rank}"
        yield FileAccess(str(rank), name, direction, int(volume / processes * rng.uniform(0.8, 1.2)))
    yield FileAccess("0", "/log", direction, int(volume * 0.01))


def played(rng: np.random.Generator) -> tuple[Footprint, set[str]]:
    """A job and its habits."""
    habits = {habit for habit in HABITS if rng.random() < 0.15}
    if "single process" in habits:
        habits -= {"shared file", "striping"}
    if habits & {"small files", "opens"}:
        habits -= {"single process", "shared file", "striping"}
    nodes = int(log_uniform(rng, 48, 4000)) if "shared file" in habits else int(log_uniform(rng, 2, 4000))
    size = log_uniform(rng, 1e9, 1e12)
    if "single process" in habits or "striping" in habits:
        size = log_uniform(rng, 4e10, 1e12)
    read, written = size * rng.uniform(0.4, 0.6), size * rng.uniform(0.4, 0.6)
    modes = {}
    for direction, volume in (("read", read), ("write", written)):
        mode = (
            "shared file"
            if "shared file" in habits
            else "single process"
            if "single process" in habits
            else "own"
        )
        modes[direction] = io_modes(accesses(rng, mode, nodes, direction, volume), min(nodes, 200))[
            direction
        ].shares

    def request(kind: str) -> float:
        return log_uniform(rng, 100, 40_000) if kind in habits else log_uniform(rng, 1.2e5, 8e6)

    files = nodes * rng.uniform(1, 3)
    if "small files" in habits:
        files = (read + written) / log_uniform(rng, 4e3, 5e5)
    elif (read + written) / files < 3e6:
        files = (read + written) / log_uniform(rng, 3e6, 1e8)
    mib = (read + written) / 2**20
    opens = (
        mib * log_uniform(rng, 70, 1000) if "opens" in habits else min(files * rng.uniform(1, 3), mib * 30)
    )
    unique = read / (log_uniform(rng, 2.5, 50) if "re-reads" in habits else rng.uniform(0.9, 1.5))

    def measured(value: float) -> float:
        return value * float(rng.uniform(0.95, 1.05))

    job = Footprint(
        nodes=nodes,
        read_bytes=measured(read),
        written_bytes=measured(written),
        reads=measured(read / request("small reads")),
        writes=measured(written / request("small writes")),
        opens=measured(opens),
        files=measured(files),
        metadata_rate=measured(
            log_uniform(rng, 380, 2e4) if "metadata rate" in habits else log_uniform(rng, 0.1, 240)
        ),
        file_bytes=measured(unique),
        forwarder_bytes=measured(
            read * (log_uniform(rng, 1.7, 8) if "amplification" in habits else rng.uniform(0.6, 1.3))
        ),
        modes=modes,
        largest_shared_file=measured(
            log_uniform(rng, 1.5e10, 1e12) if "striping" in habits else log_uniform(rng, 1e6, 1e11)
        ),
        stripes=1 if "striping" in habits else int(rng.integers(2, 64)),
    )
    if nodes <= 32:
        habits -= {"shared file"}
    return job, habits


def main() -> int:
    """Prints the table; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.jobs_advice", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the generator (default: drawn, and printed)")
    parser.add_argument("--jobs", type=int, default=500, help="(default %(default)s)")
    args = parser.parse_args()
    seed = secrets.randbits(32) if args.seed is None else args.seed
    rng = np.random.default_rng(seed)
    hits: Counter[str] = Counter()
    given: Counter[str] = Counter()
    labelled: Counter[str] = Counter()
    for _ in range(args.jobs):
        job, habits = played(rng)
        found = {each.kind for each in advice(job)}
        given.update(found)
        labelled.update(habits)
        hits.update(found & habits)
    print(f"{machine('numpy')}\nseed {seed}, {args.jobs} jobs\n")
    print("| rule | labelled | advised | precision | recall |\n|---|---|---|---|---|")
    failed = []
    for habit in HABITS:
        precision, recall = hits[habit] / max(given[habit], 1), hits[habit] / max(labelled[habit], 1)
        print(f"| {habit} | {labelled[habit]} | {given[habit]} | {precision:.3f} | {recall:.3f} |")
        if precision < PRECISION or recall < RECALL:
            failed.append(habit)
    print(*(f"missed: {habit}" for habit in failed), sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
