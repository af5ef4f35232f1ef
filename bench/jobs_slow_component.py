"""One component at twice the latency of its peers, within a job: `python -m bench.jobs_slow_component`.

Jobs over 4 to 400 OSTs, 15 s intervals: latency rises with load, which differs from component to component.
"""

import argparse
import secrets
import sys

import numpy as np

from bench.machine import machine
from laggard_aggregator.jobs.verdict.analysis.slow_component import slow_in_job

RECALL, FALSE_JOBS = 0.95, 1 / 1000


def job(rng: np.random.Generator, slow: bool) -> tuple[list[str], np.ndarray, dict[str, np.ndarray], int]:
    """Names, latencies, load, and the slow row."""
    count = int(np.exp(rng.uniform(np.log(4), np.log(400.5))))
    samples = int(rng.integers(40, 240))
    wave = np.exp(0.5 * np.sin(np.arange(samples) / rng.uniform(3, 30)))
    share = np.exp(rng.uniform(0, 0.3) * rng.standard_normal((count, 1)))
    operations = rng.poisson(rng.uniform(50, 2000) * wave * share).astype(float)
    busy = np.clip(operations / operations.max() * rng.uniform(0.2, 0.8), 0, 1)
    shape = rng.uniform(20, 200)
    latency = rng.uniform(1, 20) * (1 + busy) * rng.gamma(shape, 1 / shape, (count, samples))
    row = int(rng.integers(count))
    if slow:
        latency[row] *= 2
        operations[row] *= rng.uniform(0.5, 1)
    return [f"OST{i:04d}" for i in range(count)], latency, {"operations": operations}, row


def main() -> int:
    """Prints the figures; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.jobs_slow_component", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the generator (default: drawn, and printed)")
    parser.add_argument(
        "--jobs", type=int, default=1000, help="with, and without a slow one (default %(default)s)"
    )
    args = parser.parse_args()
    seed = secrets.randbits(32) if args.seed is None else args.seed
    rng = np.random.default_rng(seed)
    hits = false = 0
    for _ in range(args.jobs):
        names, latency, load, row = job(rng, slow=True)
        hits += names[row] in slow_in_job(names, latency, load, 15.0)
        names, latency, load, _ = job(rng, slow=False)
        false += bool(slow_in_job(names, latency, load, 15.0))
    print(f"{machine('numpy')}\nseed {seed}, {args.jobs} jobs with a slow component, as many without\n")
    print(f"found {hits / args.jobs:.3f}, jobs with a false one {false / args.jobs:.4f}")
    is_good = hits / args.jobs >= RECALL and false / args.jobs <= FALSE_JOBS
    print("" if is_good else f"missed: goals {RECALL}, {FALSE_JOBS}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
