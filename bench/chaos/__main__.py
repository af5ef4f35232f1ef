"""What is lost, counted twice or forgotten under faults of many kinds, and how soon all is well again.

    python -m bench.chaos [--faults all] [--tries 10] [--sites 4] [--seed 1]
    python -m bench.chaos --soak 30 [--seed 1]
    python -m bench.chaos --earlier TREE [--tries 10]     from a checkout of an earlier version and back

Real agents, brokers and aggregators on this machine, several small sites side by side; needs root for network
namespaces and small disks of their own. The agents sample a recorded LUN each, one of them slow, at ten times
the speed; an alarm stands from the beginning to the end of a site. Exit status 1 when a try fails.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from bench.chaos import host
from bench.chaos.faults import FAULTS, VERSION_CHANGED
from bench.chaos.feed import Feed
from bench.chaos.report import memory_table, table
from bench.chaos.runner import Runner
from bench.chaos.soak import WARM_UP, Soak
from bench.machine import machine

SPEED = 10


def main() -> int:
    """Prints the table; 1 when something was lost, counted twice or forgotten, or did not recover."""
    options = _options()
    reason = host.problem()
    if reason is not None:
        print(f"bench.chaos: {reason}", file=sys.stderr)
        return 2
    print(machine("aiomqtt", "msgpack"), flush=True)
    folder = Path(tempfile.mkdtemp(prefix="laggard-chaos-"))
    feed = Feed(folder / "feed", SPEED)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began, load = time.monotonic(), os.getloadavg()[0]
    with feed.running():
        done = _soaked(folder, feed, options) if options.soak else _tried(folder, feed, options)
    minutes = (time.monotonic() - began) / 60
    print(f"in {minutes:.0f} minutes; load {load:.0f} before, {os.getloadavg()[0]:.0f} at the end\n")
    print(table(done.results))
    print(f"\nSamples that agents did not take, as they say: {done.missed:,}")
    problems = [
        f"{r.attempt.fault}: {r.attempt.problem or 'lost or twice'}" for r in done.results if r.failed
    ]
    problems += done.problems
    if isinstance(done, Soak):
        warm, full = options.soak * WARM_UP, done.filled_minutes
        print(f"\nWarm after {warm:.0f} min; the history of windows is full after {full:.1f} at least")
        print(f"\n{memory_table(done.memory)}")
        problems += [f"{m.name}: memory grew" for m in done.memory if m.grew]
        problems += [f"{m.name}: descriptors stay open" for m in done.memory if m.keeps_files]
    elif len(done.results) < (1 if options.earlier else len(options.faults)) * options.tries:
        problems.append("not everything was tried")
    for problem in problems:
        print(f"PROBLEM {problem}")
    if problems:
        print(f"logs are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def _tried(folder: Path, feed: Feed, options: argparse.Namespace) -> Runner:
    runner = Runner(folder, feed, options.seed, options.earlier)
    faults = [VERSION_CHANGED] if options.earlier else [FAULTS[name] for name in options.faults]
    runner.run(faults, options.tries, options.sites)
    return runner


def _soaked(folder: Path, feed: Feed, options: argparse.Namespace) -> Soak:
    soak = Soak(folder, feed, options.seed, options.soak)
    soak.run()
    return soak


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", default="all", help=f"some of {', '.join(FAULTS)}")
    parser.add_argument("--tries", type=int, default=10, help="of each fault")
    parser.add_argument("--sites", type=int, default=4, help="side by side")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--soak", type=float, metavar="MINUTES", help="two sites, faults by chance; memory, files"
    )
    parser.add_argument("--earlier", type=Path, metavar="TREE", help="a checkout of an earlier version")
    options = parser.parse_args()
    options.faults = list(FAULTS) if options.faults == "all" else options.faults.split(",")
    unknown = [name for name in options.faults if name not in FAULTS]
    if unknown:
        parser.error(f"--faults: unknown: {', '.join(unknown)}")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
