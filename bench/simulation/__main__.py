"""Simulates a site with faults, seed by seed, and checks what `docs/reliability.md` promises.

    python -m bench.simulation --seed 42                  one seed, with its history
    python -m bench.simulation --seeds 0-9999 --jobs 2    many seeds; prints those that break an invariant
    python -m bench.simulation --seed 42 --mutation "duplicates are accepted"
    python -m bench.simulation --mutations                each error put into the code, until a seed finds it
    python -m bench.simulation --list                     those errors

Agents, broker, aggregator, disks and clocks run in one process in virtual time: no network, no threads, no
root, files in /dev/shm. The same seed gives the same history. Exit status 1 when an invariant is broken, or a
mutation is not found.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from itertools import count, islice

from bench.machine import machine
from bench.simulation.mutations import MUTATIONS, Mutation
from bench.simulation.plan import plan_of
from bench.simulation.processes import EPOCH_NS
from bench.simulation.simulate import Outcome, simulate

YEAR_SECONDS = 365 * 86_400
TRIES = 400
"""Seeds tried for each mutation."""
_REPORT_EVERY = 100


def main(arguments: list[str] | None = None) -> int:
    """Runs what the arguments say; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, help="run one seed and print its history")
    parser.add_argument("--seeds", metavar="FIRST-LAST", type=_range, help="run many seeds")
    parser.add_argument("--jobs", type=int, default=1, help="processes for --seeds (default 1)")
    parser.add_argument("--mutation", choices=MUTATIONS, metavar="NAME", help="with this error in the code")
    parser.add_argument("--mutations", action="store_true", help="try each error")
    parser.add_argument("--list", action="store_true", help="list the errors")
    options = parser.parse_args(arguments)
    if options.list:
        for name, mutation in MUTATIONS.items():
            print(f"{name}: breaks {' or '.join(mutation.breaks)}")
        return 0
    if options.mutations:
        return _try_mutations()
    if options.seed is not None:
        with MUTATIONS[options.mutation].applied() if options.mutation else nullcontext():
            return _show(simulate(options.seed))
    if options.seeds is None:
        parser.error("expected --seed, --seeds, --mutations or --list")
    return _run_many(options.seeds, options.jobs)


def first_found(mutation: Mutation, tries: int = TRIES) -> tuple[int, int, list[str]] | None:
    """The first seed that finds `mutation`, the number of seeds tried, and the problems; None without one."""
    with mutation.applied():
        for tried, seed in enumerate(islice(_seeds_for(mutation), tries), start=1):
            found = [each for each in simulate(seed).problems if each.startswith(mutation.breaks)]
            if found:
                return seed, tried, found
    return None


def _seeds_for(mutation: Mutation) -> Iterator[int]:
    """Seeds whose plans have the faults that show a mutation."""
    for seed in count():
        plan = plan_of(seed)
        if mutation.shown_by and not plan.kinds & mutation.shown_by:
            continue
        if (mutation.harmless and not plan.harmless) or (mutation.whole and not plan.jobs):
            continue
        if not mutation.small_spool or plan.spool_bytes < 1 << 20:
            yield seed


def _show(outcome: Outcome) -> int:
    plan = outcome.plan
    slow_from = plan.slow.first * plan.interval_seconds - EPOCH_NS // 10**9
    print(
        f"seed {plan.seed}: {plan.samples} samples at {plan.interval_seconds} s, "
        f"{plan.slow.component} is slow from {slow_from} s on"
    )
    for event in outcome.history:
        print(f"{event.seconds - 1000:10.2f} {event.source:6} {event.text}")
    print(", ".join(f"{name} {number}" for name, number in sorted(outcome.counts.items())))
    print(f"{outcome.site_seconds:.0f} s of the site in {outcome.cpu_seconds:.2f} s of CPU time")
    for problem in outcome.problems:
        print(f"BROKEN {problem}")
    return bool(outcome.problems)


def _run_many(seeds: range, jobs: int) -> int:
    print(machine("numpy", "pyarrow"), flush=True)
    began = time.monotonic()
    counts, kinds, broken = Counter[str](), Counter[str](), list[int]()
    site_seconds = cpu_seconds = 0.0
    for done, outcome in enumerate(_outcomes(seeds, jobs), start=1):
        counts += outcome.counts
        kinds.update(fault.kind for fault in outcome.plan.faults)
        site_seconds += outcome.site_seconds
        cpu_seconds += outcome.cpu_seconds
        if outcome.problems:
            broken.append(outcome.plan.seed)
            for problem in outcome.problems:
                print(f"seed {outcome.plan.seed}: BROKEN {problem}", flush=True)
        if done % _REPORT_EVERY == 0:
            print(f"{done} seeds, {site_seconds / 86400:.0f} days, {cpu_seconds:.0f} s CPU", flush=True)
    print(f"{len(seeds)} seeds, {site_seconds / YEAR_SECONDS:.3f} years of the site, {kinds.total()} faults")
    seconds = time.monotonic() - began
    print(f"{cpu_seconds:.0f} s of CPU time, {seconds:.0f} s: {len(broken)} seeds broken")
    print("faults:", ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())))
    print("counts:", ", ".join(f"{number} {name}" for name, number in sorted(counts.items())))
    return bool(broken)


def _outcomes(seeds: range, jobs: int) -> Iterable[Outcome]:
    if jobs == 1:
        yield from map(_without_history, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_without_history, seeds, chunksize=8)


def _without_history(seed: int) -> Outcome:
    outcome = simulate(seed)
    outcome.history, outcome.windows = [], {}
    return outcome


def _try_mutations() -> int:
    missed = 0
    for name, mutation in MUTATIONS.items():
        found = first_found(mutation)
        if found is None:
            missed += 1
            print(f"NOT FOUND in {TRIES} seeds: {name}", flush=True)
        else:
            seed, tried, problems = found
            print(f"{name}: seed {seed}, the {tried}. tried: {problems[0][:150]}", flush=True)
    print(f"{len(MUTATIONS) - missed} of {len(MUTATIONS)} mutations found")
    return bool(missed)


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    sys.exit(main())
