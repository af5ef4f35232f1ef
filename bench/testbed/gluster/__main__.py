"""Run real faults on a real GlusterFS cluster, watched by real agents, a real broker and a real aggregator.

Servers and clients are network namespaces on one bridge; every brick is on a fake LUN of its own. In each run
the cluster is healthy first, then one brick or one server is not, and every alarm is taken down. Needs root,
glusterfs-server, fio, mosquitto, nftables, iproute2, loop devices and cgroup v1 (cpu, blkio); without them
one line and exit 2. Exit 1 when a run failed, or did not end as it should: the right component blamed and
no other.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.testbed.command import carry_out
from bench.testbed.gluster.cluster import Cluster, cluster
from bench.testbed.gluster.experiments import EXPERIMENTS, Target
from bench.testbed.gluster.load import lay_out
from bench.testbed.gluster.report import table
from bench.testbed.gluster.site import Detection
from bench.testbed.gluster.watch import Phases, run_once
from bench.testbed.options import GOLDEN, count, minutes, seconds

EXAMPLES = """\
examples:
  python -m bench.testbed.gluster --run brick --minutes 3
  python -m bench.testbed.gluster --run control brick quota loss-read loss-write --repeat 3 --output runs.json
  python -m bench.testbed.gluster --run brick --servers 4 --clients 1 --window 20 --shift 10 --until-found
  python -m bench.testbed.gluster.report runs.json more-runs.json
"""
STEP = 5
"""From run to run the fault moves on by so many bricks."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when every run ended as it should, 1 when one did not, 2 when the machine lacks something."""
    options = _parser().parse_args(arguments)
    what = f"glusterfs on {options.servers} servers x {options.bricks} bricks"
    return carry_out("gluster", options, runs, line=_line, table=table, what=what)


def runs(options: argparse.Namespace, scratch: Path) -> Iterator[dict[str, Any]]:
    """Yield what came of each run, all on one cluster, with a new Laggard for each. Raises TestbedError."""
    detection = Detection(options.window, options.shift, options.confirm)
    with ExitStack() as stack:
        made = stack.enter_context(cluster(options.servers, options.bricks, options.clients, scratch))
        files = lay_out(made)
        for number, name in enumerate(options.run * options.repeat):
            healthy = options.healthy + options.shift * (number * GOLDEN % 1.0)
            phases = Phases(healthy, options.minutes * 60, options.until_found)
            yield run_once(name, made, files, _target(made, number), phases, detection, scratch)


def _target(made: Cluster, number: int) -> Target:
    """Return where the fault of the run of this number is."""
    brick = made.bricks[(STEP * (number + 1)) % len(made.bricks)]
    return Target(brick, next(server for server in made.servers if server.name == brick.server))


def _line(result: dict[str, Any]) -> str:
    """Return one line about a run, for someone who waits."""
    named = [
        f"{kind}: {alarm['component']} ({alarm['source']} {alarm['metric']}, {alarm['delay_seconds']:.0f} s)"
        for kind, alarms in result["alarms"].items()
        for alarm in alarms
    ]
    verdict = "as it should" if result["as_it_should"] else "NOT as it should"
    located = "; ".join(f"{each['level']} {each['component']}" for each in result["located"]) or "nothing"
    level = f"located {'right' if result['located_right'] else 'WRONG'}: {located}"
    return f"{result['run']} {result['target']}: {verdict}; {'; '.join(named) or 'no alarm'}; {level}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.testbed.gluster",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--run", nargs="+", required=True, choices=EXPERIMENTS, help="what to run, in this order"
    )
    parser.add_argument(
        "--minutes", type=minutes, default=3.0, metavar="N", help="how long a fault lasts (default 3)"
    )
    parser.add_argument(
        "--healthy", type=seconds, default=90.0, metavar="SECONDS", help="before it, at least (default 90)"
    )
    parser.add_argument("--repeat", type=count(1, 100), default=1, metavar="N", help="all runs so many times")
    parser.add_argument("--until-found", action="store_true", help="a fault ends with the right alarm")
    parser.add_argument("--servers", type=count(4, 10), default=6, metavar="N", help="4-10 (default 6)")
    parser.add_argument("--bricks", type=count(1, 2), default=2, metavar="N", help="a server (default 2)")
    parser.add_argument("--clients", type=count(1, 8), default=2, metavar="N", help="default 2")
    for name, default in (("window", 60), ("shift", 30), ("confirm", 3)):
        parser.add_argument(
            f"--{name}", type=count(1, 600), default=default, metavar="N", help=f"default {default}"
        )
    parser.add_argument("--output", type=Path, metavar="FILE", help="all results, as JSON")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()), metavar="DIR")
    return parser


if __name__ == "__main__":
    sys.exit(main())
