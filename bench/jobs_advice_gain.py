"""Promised and reached gain of advice on a real GlusterFS cluster: `python -m bench.jobs_advice_gain`.

Four nodes run each program as it is and as the advice says, by turns, the order changing from round to round.
The promise is the one that `laggard job` says of the run as it is; the gain that is reached is by how much
sooner the advised run ended. The median of a rule's rounds has to be within 30 % of the promise. Needs what
`python -m bench.testbed.gluster` does; returns 2 when that is missing, 1 when a promise is not kept.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.machine import machine
from bench.testbed.gluster.cluster import MOUNT, Cluster, cluster, spread_files
from bench.testbed.gluster.jobs import DETECTION, GLOBAL, LONGEST_SECONDS, REST_SECONDS, Ran
from bench.testbed.gluster.site import site
from bench.testbed.gluster.verdicts import verdicts
from bench.testbed.hosts import Host, running
from bench.testbed.luns import CannotRunError, TestbedError, stop_on_signals
from bench.testbed.options import count
from bench.testbed.running import until

SERVERS, NODES = 4, 4
WITHIN = 0.3
RULES = ("small writes", "small reads", "metadata rate")
SMALL, LARGE = "4k", "1m"
UNITS: Mapping[str, float] = {"s": 1.0, "min": 60.0, "h": 3600.0}
PROMISE = re.compile(r"save a node about ([0-9.e+]+) (s|min|h) of")
LOG = """
import os, sys
name, records, kept = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "advised"
log = os.open(name, os.O_WRONLY) if kept else -1
for number in range(records):
    if not kept:
        os.stat(name)
        log = os.open(name, os.O_WRONLY)
    os.pwrite(log, b"record  " * 64, 512 * number)
    if not kept:
        os.close(log)
"""
"""A program that adds records to its log: as it is, it stats, opens and closes the log for each."""

Files = Mapping[Host, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Round:
    """A run as the program is, and one as the advice says; seconds. `promised`: None when nothing was."""

    rule: str
    before: float
    after: float
    promised: float | None
    advice: str

    @property
    def reached(self) -> float:
        """Seconds saved."""
        return self.before - self.after

    @property
    def ratio(self) -> float:
        """The reached gain by the promised one, 0 without a promise."""
        return self.reached / self.promised if self.promised else 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; 1 when the gain of a rule is not as promised, 2 when the testbed cannot be built."""
    options = _parser().parse_args(arguments)
    stop_on_signals()
    try:
        with tempfile.TemporaryDirectory(prefix="advice-gain-", dir=options.scratch) as folder:
            found = rounds(options, Path(folder))
    except (TestbedError, OSError) as exc:
        print(f"bench.jobs_advice_gain: {exc}", file=sys.stderr)
        return 2 if isinstance(exc, CannotRunError) else 1
    if options.output is not None:
        records = [{name: getattr(each, name) for name in _FIELDS} for each in found]
        options.output.write_text(json.dumps({"machine": machine(), "rounds": records}, indent=1) + "\n")
    lines, kept = table(found)
    print("\n".join(lines))
    print(f"\n{machine()}; glusterfs on {SERVERS} servers, {NODES} nodes, {options.rounds} rounds")
    return 0 if kept else 1


_FIELDS = ("rule", "before", "after", "promised", "reached", "ratio", "advice")


def table(found: Sequence[Round]) -> tuple[list[str], bool]:
    """A row a rule, and whether every median is within WITHIN of its promise."""
    lines = [
        "| rule | as it is, s | as advised, s | promised, s | reached, s | reached / promised | holds |",
        "|---|---|---|---|---|---|---|",
    ]
    kept = True
    for rule in dict.fromkeys(each.rule for each in found):
        mine = [each for each in found if each.rule == rule]
        holds = abs(statistics.median(each.ratio for each in mine) - 1) <= WITHIN
        kept &= holds
        cells = [
            _spread([getattr(each, name) or 0.0 for each in mine], digits)
            for name, digits in (("before", 1), ("after", 1), ("promised", 1), ("reached", 1), ("ratio", 2))
        ]
        lines.append(f"| {rule} | {' | '.join(cells)} | {'yes' if holds else 'no'} |")
    return lines, kept


def _spread(values: Sequence[float], digits: int) -> str:
    low, middle, high = (
        round(each, digits) for each in (min(values), statistics.median(values), max(values))
    )
    return f"{middle} ({low} to {high})"


def rounds(options: argparse.Namespace, scratch: Path) -> list[Round]:
    """Runs all programs and asks for what is said of them. Raises TestbedError."""
    done: dict[tuple[str, int, str], Ran] = {}
    with cluster(SERVERS, 1, NODES, scratch) as made:
        files = {
            node: [name for chosen in spread_files(made, node, node.name, 1).values() for name in chosen]
            for node in made.clients
        }
        _run(made, _fio(files, "write", LARGE, options.mib, scratch), scratch)
        with site(made, DETECTION, scratch) as there:
            for number, rule, form in _order(options.rounds, options.rule):
                begun = time.time()
                _run(made, _commands(rule, form, files, options, scratch), scratch)
                done[rule, number, form] = _ran(len(done), f"{rule} {form}", made.clients, begun)
                there.check()
                print(f"{rule} {form}: {time.time() - begun:.1f} s", file=sys.stderr, flush=True)
                time.sleep(REST_SECONDS)
    said = verdicts(scratch, list(done.values()))
    return [
        _round(rule, was, done[rule, number, "advised"], said[was.job])
        for (rule, number, form), was in done.items()
        if form == "as is"
    ]


def _order(number: int, rules: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    for at in range(number):
        for rule in rules:
            yield from ((at, rule, form) for form in ("as is", "advised")[:: -1 if at % 2 else 1])


def _round(rule: str, was: Ran, then: Ran, said: Mapping[str, Any]) -> Round:
    advised = next((each["advice"] for each in said["findings"] if each["kind"] == rule), "")
    found = PROMISE.search(advised)
    promised = float(found[1]) * UNITS[found[2]] if found else None
    return Round(rule, was.end - was.start, then.end - then.start, promised, advised)


def _ran(number: int, name: str, nodes: Sequence[Host], start: float) -> Ran:
    return Ran("usual", 2001 + number, "ann", name, tuple(each.name for each in nodes), start, time.time())


def _commands(
    rule: str, form: str, files: Files, options: argparse.Namespace, scratch: Path
) -> dict[Host, list[str]]:
    """The command of each node."""
    if rule == "metadata rate":
        return {
            node: [sys.executable, "-c", LOG, str(MOUNT / names[0]), str(options.records), form]
            for node, names in files.items()
        }
    size = SMALL if form == "as is" else LARGE
    return _fio(files, "write" if rule == "small writes" else "read", size, options.mib, scratch)


def _fio(files: Files, direction: str, size: str, mib: int, scratch: Path) -> dict[Host, list[str]]:
    """A fio a node, on its files by turns."""
    found = {}
    for number, (node, names) in enumerate(files.items()):
        own = [str(MOUNT / name) for name in (*names[number:], *names[:number])]
        lines = {
            **GLOBAL,
            "rw": direction,
            "bs": size,
            "size": f"{mib * len(own)}m",
            "filename": ":".join(own),
            "file_service_type": "roundrobin",
        }
        path = scratch / f"{node.name}.fio"
        path.write_text("[job]\n" + "".join(f"{key}={value}\n" for key, value in lines.items()))
        found[node] = ["fio", str(path)]
    return found


def _run(made: Cluster, commands: Mapping[Host, Sequence[str]], scratch: Path) -> None:
    """Runs a command on each node until all have ended. Raises TestbedError."""
    with ExitStack() as stack:
        started = [
            stack.enter_context(running(node, commands[node], scratch / f"{node.name}.run.log"))
            for node in made.clients
        ]
        until("the job", lambda: all(each.poll() is not None for each in started), LONGEST_SECONDS)
        if any(each.returncode for each in started):
            raise TestbedError("a program failed")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.jobs_advice_gain", description=__doc__)
    parser.add_argument("--rule", nargs="+", default=RULES, choices=RULES, help="rules (default all)")
    parser.add_argument("--rounds", type=count(1, 50), default=5, metavar="N", help="(default %(default)s)")
    parser.add_argument("--mib", type=count(13, 64), default=16, metavar="N", help="a file (default 16)")
    parser.add_argument(
        "--records", type=count(500, 100_000), default=5000, metavar="N", help="of a log (default 5000)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="all rounds, as JSON")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()), metavar="DIR")
    return parser


if __name__ == "__main__":
    sys.exit(main())
