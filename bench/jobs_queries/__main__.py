"""Times of questions about a generated year of jobs: `python -m bench.jobs_queries`.

Eight processes ask at a time, each by connections of its own; before each round the kernel's caches are
dropped where this process may (root). A first round of each kind, in which the processes load their
libraries, does not count. The index is built once before; nothing keeps answers. Heat maps are of two hours
of rollups. Exits with 1 when a limit is exceeded.
"""

import argparse
import multiprocessing as mp
import os
import random
import secrets
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from bench.jobs_queries import counters
from bench.jobs_queries.clients import join, one
from bench.jobs_queries.generator import SiteSize, make, write
from bench.jobs_queries.questions import HEAT_SECONDS, QUESTIONS, Asker
from bench.machine import machine
from laggard_aggregator.jobs.index.job_index import JobIndex

CLIENTS = 8
DROP_CACHES = Path("/proc/sys/vm/drop_caches")
QUICK = SiteSize(nodes=512, jobs=4_000, days=20, detail_days=1)


def main() -> int:
    """Prints the figures and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small site, to try it")
    parser.add_argument("--rounds", type=int, default=25, help="of eight questions each (default 25)")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--directory", type=Path, help="keeps the site here, and uses one that is there")
    parser.add_argument("--only", action="append", choices=QUESTIONS, help="this question; may be repeated")
    args = parser.parse_args()
    seed = secrets.randbits(32) if args.seed is None else args.seed
    size = QUICK if args.quick else SiteSize()
    seconds = 120 if args.quick else HEAT_SECONDS
    print(f"{machine('pyarrow', 'numpy')}; seed {seed}", flush=True)
    folder = args.directory or Path(tempfile.mkdtemp(prefix="laggard-jobs-"))
    try:
        asker = prepare(folder, size, seconds, seed)
        return measure(asker, args.only or list(QUESTIONS), args.rounds)
    finally:
        if args.directory is None:
            shutil.rmtree(folder)


def prepare(folder: Path, size: SiteSize, seconds: int, seed: int) -> Asker:
    """Makes the site and its index where they are not there."""
    rng = np.random.default_rng(seed)
    site = make(size, rng)
    began = time.perf_counter()
    if not (folder / "kind=jobs").is_dir():
        write(site, folder, rng)
        counters.write_rollups(folder, size.nodes, max(seconds // 3600, 1), rng)
        print(f"site written in {time.perf_counter() - began:.0f} s", flush=True)
    began = time.perf_counter()
    index = JobIndex(folder)
    files = index.refresh()
    took = time.perf_counter() - began
    kept = index.path.stat().st_size / 1e6
    print(
        f"{len(site.keys):,} jobs, {site.memberships:,} memberships; index of {files} files: {took:.0f} s,"
        f" {kept:,.0f} MB",
        flush=True,
    )
    detailed = site.keys[int(np.searchsorted(site.end, site.detailed_from)) :][-2000:]
    return Asker(folder, size, detailed, random.Random(seed), seconds)


def measure(asker: Asker, names: list[str], rounds: int) -> int:
    """Prints p50, p99 and the limit of each question; returns 1 when one is exceeded."""
    cold = drop_caches()
    print(
        f"{CLIENTS} clients, {'cold' if cold else 'warm'} caches, {rounds * CLIENTS} questions of each kind"
    )
    print("| question | p50, ms | p99, ms | limit, ms | holds |\n|---|---|---|---|---|")
    context = mp.get_context("spawn")
    failed = False
    with ProcessPoolExecutor(
        CLIENTS, context, initializer=join, initargs=(context.Barrier(CLIENTS),)
    ) as pool:
        for name in names:
            question = QUESTIONS[name]
            of_all = rounds if question.limit_seconds < 2 else max(rounds // 5, 1)
            taken: list[float] = []
            for turn in range(of_all + 1):
                drop_caches()
                seeds = [asker.chance.getrandbits(32) for _ in range(CLIENTS)]
                times = list(pool.map(one, [asker] * CLIENTS, [name] * CLIENTS, seeds))
                taken += times if turn else []  # in the first, processes load their libraries
            p50, p99 = np.quantile(taken, [0.5, 0.99]).tolist()
            holds = p99 <= question.limit_seconds
            failed |= not holds
            figures = f"{p50 * 1e3:,.1f} | {p99 * 1e3:,.1f} | {question.limit_seconds * 1e3:,.0f}"
            print(f"| {name} | {figures} | {'yes' if holds else 'no'} |", flush=True)
    return int(failed)


def drop_caches() -> bool:
    """Whether the kernel's caches of files were dropped."""
    os.sync()
    try:
        DROP_CACHES.write_text("1")
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
