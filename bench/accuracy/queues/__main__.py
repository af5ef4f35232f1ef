"""Storage devices as queues, request by request: found and falsely alarmed by `laggard diagnose`."""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path

from bench.accuracy.queues.case import QueueCase, case_names, write_case
from bench.accuracy.queues.judge import QueueScore, diagnose, score
from bench.machine import machine

QUICK = (
    "common/x1.5",
    "jobs/none",
    "stripe/none",
    "skew/intermittent",
    "sizes/tail",
    "hetero/x2",
    "nvme/none",
    "cache/none",
    "closed/x3",
    "common/server",
    "jobs/half",
)

ROW = "{:<8} {:<12} {:>7} {:>4} {:>7} {:>9} {:>15} {:>8}  {}"


def main() -> None:
    """Prints a row for each case."""
    args = _parser().parse_args()
    cases = [case for case in case_names(args.seeds) if _chosen(case, args.only, quick=args.quick)]
    if not cases:
        sys.exit(f"queues: --only {args.only}: no case has such a name")
    if args.json and not args.json.parent.is_dir():
        sys.exit(f"queues: --json {args.json}: no such folder")
    print(
        ROW.format(
            "load", "fault", "members", "seed", "found", "delay min", "healthy alarmed", "unjudged", "split"
        )
    )
    scores = []
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            written = write_case(case, Path(folder))
            scores.append(score(case, written, diagnose(written.files)))
        print(_row(scores[-1]), flush=True)
    print(_summary(scores))
    print(machine("numpy"))
    if args.json:
        args.json.write_text(json.dumps([asdict(one) for one in scores], indent=1) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.accuracy.queues", description=__doc__.split("\n", maxsplit=1)[0]
    )
    add = parser.add_argument
    add("--quick", action="store_true", help=f"{len(QUICK)} pairs of load and fault instead of 72")
    add("--seeds", metavar="N", type=int, default=1, help="cases of each pair (default: 1)")
    add("--only", metavar="PATTERN", default="*", help="names load/fault/seed that match, such as 'jobs/*'")
    add("--json", metavar="FILE", type=Path, help="keep the scores, too")
    return parser


def _chosen(case: QueueCase, pattern: str, *, quick: bool) -> bool:
    return fnmatchcase(case.name, pattern) and (not quick or f"{case.load}/{case.fault}" in QUICK)


def _row(one: QueueScore) -> str:
    case = one.case
    return ROW.format(
        case.load,
        case.fault,
        case.members,
        case.seed,
        f"{one.found}/{one.ill}" if one.ill else "-",
        "-" if one.delay_minutes is None else f"{one.delay_minutes:.0f}",
        len(one.healthy),
        one.unjudged,
        "; ".join((*(f"wrong: {name}" for name in one.wrong_groups), *one.splits)) or "-",
    )


def _summary(scores: list[QueueScore]) -> str:
    ill, found = sum(one.ill for one in scores), sum(one.found for one in scores)
    healthy = sum(len(one.healthy) for one in scores)
    of = sum(one.case.members - len(one.case.queue_fault().members) for one in scores)
    return f"found {found} of {ill}; alarmed {healthy} of {of} healthy members"


if __name__ == "__main__":
    main()
