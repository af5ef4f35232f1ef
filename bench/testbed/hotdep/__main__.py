"""Run real faults on one of several I/O servers, found by what their functions do.

The servers are programs of this testbed, compiled with -finstrument-functions and linked with
liblaggardtrace.so, each on a disk of its own and in control groups that are its node; a client stripes its
I/O over all of them. On each node a real agent traces and samples the functions of that node alone. Laggard
is trained without a fault first, then each run has a healthy phase and a fault on one peer. Needs root, gcc,
mosquitto, iproute2, loop devices, perf events, cgroup v1 (cpu, blkio) and control groups for perf events;
without them one line and exit 2. Exit 1 when a run failed, or did not end as it should: the right peer
blamed by the right metric, what is wrong among the functions named, nothing else blamed, and `laggard
diagnose` of the same opinion.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.testbed.command import carry_out
from bench.testbed.gluster.watch import Phases
from bench.testbed.hosts import own_namespaces
from bench.testbed.hotdep.experiments import EXPERIMENTS
from bench.testbed.hotdep.peers import service
from bench.testbed.hotdep.report import table
from bench.testbed.hotdep.site import PAPER, Windows
from bench.testbed.hotdep.watch import run_once, train_once
from bench.testbed.options import GOLDEN, count, minutes, seconds

EXAMPLES = """\
examples:
  python -m bench.testbed.hotdep --run control disk cpu --output runs.json
  python -m bench.testbed.hotdep --run cpu --thresholds functions.toml --until-found
  python -m bench.testbed.hotdep --run cpu --interval 2 --window 5 --shift 2 --untrained --healthy 10
"""
STEP = 2
"""From run to run the fault moves on by so many peers."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when every run ended as it should, 1 when one did not, 2 when the machine lacks something."""
    options = _parser().parse_args(arguments)
    what = f"{options.peers} I/O servers"
    return carry_out("hotdep", options, runs, line=_line, table=table, what=what)


def runs(options: argparse.Namespace, scratch: Path) -> Iterator[dict[str, Any]]:
    """Yield what came of each run, all on the same servers, each with a new Laggard. Raises TestbedError."""
    windows = Windows(options.interval, options.window, options.shift, options.confirm)
    thresholds = None if options.untrained else options.thresholds or scratch / "functions.toml"
    own_namespaces()
    with service(options.peers, scratch) as made:
        if thresholds is not None and not thresholds.exists():
            train_once(made, windows, options.train * 60, thresholds, scratch)
        for number, name in enumerate(options.run * options.repeat):
            healthy = options.healthy + windows.shift_seconds * (number * GOLDEN % 1.0)
            phases = Phases(healthy, options.minutes * 60, options.until_found)
            peer = made.peers[(1 + STEP * number) % len(made.peers)]
            yield run_once(name, made, peer, phases, windows, thresholds, scratch)


def _line(result: dict[str, Any]) -> str:
    """Return one line about a run, for someone who waits."""
    named = [
        f"{kind}: {alarm['component']} ({alarm['source']} {alarm['metric']}, {alarm['delay_seconds']:.0f} s:"
        f" {', '.join(cause['name'] for cause in alarm['causes'][:3])})"
        for kind, alarms in result["alarms"].items()
        for alarm in alarms
    ]
    verdict = "as it should" if result["as_it_should"] else "NOT as it should"
    agrees = "" if result["diagnose_agrees"] else f"; laggard diagnose: {result['diagnose']}"
    return f"{result['run']} {result['target']}: {verdict}; {'; '.join(named) or 'no alarm'}{agrees}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.testbed.hotdep",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--run", nargs="+", required=True, choices=EXPERIMENTS, help="what to run, in this order")
    add("--train", type=minutes, default=4.0, metavar="MINUTES", help="to train on (default 4)")
    add("--healthy", type=seconds, default=60.0, metavar="SECONDS", help="before a fault, at least (60)")
    add("--minutes", type=minutes, default=3.0, metavar="N", help="how long a fault lasts (default 3)")
    add("--until-found", action="store_true", help="a fault ends with the right alarm")
    add("--repeat", type=count(1, 100), default=1, metavar="N", help="all runs so many times")
    add("--peers", type=count(4, 16), default=6, metavar="N", help="4-16 (default 6)")
    trained = parser.add_mutually_exclusive_group().add_argument
    written = "of an earlier training; written where it is not there"
    trained("--thresholds", type=Path, metavar="FILE", help=written)
    trained("--untrained", action="store_true", help="judge without thresholds")
    add("--interval", type=seconds, default=PAPER.interval_seconds, metavar="SECONDS", help="default 10")
    for name, default in (("window", PAPER.window), ("shift", PAPER.shift), ("confirm", PAPER.confirm)):
        add(f"--{name}", type=count(1, 600), default=default, metavar="N", help=f"default {default}")
    add("--output", type=Path, metavar="FILE", help="all results, as JSON")
    add("--scratch", type=Path, default=Path(tempfile.gettempdir()), metavar="DIR")
    return parser


if __name__ == "__main__":
    sys.exit(main())
