"""The load grid: `python -m bench.accuracy.load_grid`, tables of found and falsely named components."""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bench.accuracy.load_grid import scenarios
from bench.accuracy.load_grid.case_windows import lines
from bench.accuracy.load_grid.judge import judge, judge_by_command
from bench.accuracy.load_grid.report import tables
from bench.accuracy.load_grid.results import Kept, Result, Task, detector, run_tasks
from bench.accuracy.load_grid.scenario import OPERATIONS, Scenario, Seeds
from bench.machine import cores, machine


def main() -> None:
    """Prints the tables."""
    args = _parser().parse_args()
    # An orderly end, so that the processes of the pool end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    seeds: Seeds = "reporting" if args.reporting else "tuning"
    chosen = scenarios(args.only, quick=args.quick)
    if not chosen:
        sys.exit(f"load_grid: --only {args.only}: no scenario has such a name")
    if args.list:
        print("\n".join(scenario.name for scenario in chosen))
    elif args.windows:
        for scenario in chosen:
            print("\n".join(lines(scenario, 0, seeds, with_load=not args.without_load)))
    elif args.report:
        _print_tables(_read(args.report), args.before)
    elif args.cli:
        _by_command(chosen, seeds)
    else:
        _run(args, chosen, seeds)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.accuracy.load_grid", description=__doc__.split("\n")[0]
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="some cells of every kind: about 3 minutes of one core")
    add(
        "--only", metavar="PATTERN", default="*", help="names that match, such as 'grid/jobs/*' or '*backup*'"
    )
    add("--seeds", metavar="N", type=int, default=1, help="tries of each scenario, times its own number")
    add("--jobs", metavar="N", type=int, default=cores(), help="processes (default: one a core)")
    add("--without-load", action="store_true", help="judge each series without its load, too, and compare")
    add("--reporting", action="store_true", help="seeds for figures that are reported, not those for tuning")
    add("--windows", action="store_true", help="print each window of the first try instead of tables")
    add("--before", metavar="FILE.json", type=Path, help="compare with those results instead of without load")
    add("--list", action="store_true", help="print the scenarios' names")
    add("--report", metavar="FILE.json", type=Path, help="print the tables of an earlier run")
    add(
        "--cli",
        action="store_true",
        help="through the command `laggard diagnose`; compares it with this process",
    )
    add(
        "-o",
        "--output",
        metavar="FILE.json",
        type=Path,
        help="results; FILE.json.part goes on where it ended",
    )
    return parser


def _run(args: argparse.Namespace, chosen: list[Scenario], seeds: Seeds) -> None:
    tasks = [
        Task(scenario, number, seeds, args.without_load)
        for scenario in chosen
        for number in range(args.seeds * (1 if args.quick else scenario.tries))
    ]
    begun, cpus = time.monotonic(), args.jobs
    kept = None
    done: list[Result] = []
    if args.output:
        head = {"detector": detector(), "seeds": seeds, "without_load": args.without_load}
        kept = Kept(args.output.with_name(f"{args.output.name}.part"), head)
        done = kept.read()
    known = {(result.row, result.column, result.number) for result in done}
    results = run_tasks([task for task in tasks if task.key not in known], cpus)
    for count, result in enumerate(kept.append(results) if kept else results, len(known) + 1):
        done.append(result)
        if sys.stderr.isatty():
            print(f"\r{count} of {len(tasks)} runs", end="", file=sys.stderr, flush=True)
    place = {task.key: at for at, task in enumerate(tasks)}
    done = sorted(
        (result for result in done if (result.row, result.column, result.number) in place),
        key=lambda result: place[result.row, result.column, result.number],
    )
    used, took = os.times(), time.monotonic() - begun
    cpu = used.user + used.system + used.children_user + used.children_system
    counts = (
        f"{len(done)} runs, {len(known)} of them earlier; {took:.0f} s, {cpu:.0f} s of CPU, {cpus} processes"
    )
    facts = f"{detector()}; {seeds} seeds; {counts}"
    _print_tables(done, args.before)
    print(f"\n{facts}\n{machine('numpy', 'scipy')}")
    if args.output:
        document = {
            "machine": machine("numpy", "scipy"),
            "detector": detector(),
            "seeds": seeds,
            "results": [result.record() for result in done],
        }
        args.output.write_text(f"{json.dumps(document)}\n")


def _print_tables(results: list[Result], before: Path | None) -> None:
    if before is None:
        print("\n".join(tables(results)))
        return
    earlier = {(r.row, r.column, r.number): r.with_load for r in _read(before)}
    shared = [result for result in results if (result.row, result.column, result.number) in earlier]
    compared = [replace(r, without_load=earlier[r.row, r.column, r.number]) for r in shared]
    print("\n".join(tables(compared, "before")))


def _read(path: Path) -> list[Result]:
    return [Result.of_record(record) for record in json.loads(path.read_text())["results"]]


def _by_command(chosen: list[Scenario], seeds: Seeds) -> None:
    """Prints whether `laggard diagnose` names the same components as the engine in this process."""
    same = 0
    for scenario in chosen:
        series = scenario.series(0, seeds)
        here = judge(series, scenario.windows, OPERATIONS)
        with tempfile.TemporaryDirectory() as directory:
            there = judge_by_command(series, scenario.windows, Path(directory), with_load=True)
        agrees = here.stragglers == there.stragglers
        same += agrees
        print(f"{'same' if agrees else 'DIFFERENT'} {scenario.name}: {sorted(there.stragglers)}", flush=True)
    print(f"{same} of {len(chosen)} the same")
    sys.exit(same != len(chosen))


if __name__ == "__main__":
    main()
