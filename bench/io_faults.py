"""Agents and an aggregator under a fault of one I/O call at a time, over every call site that a run reaches.

    python -m bench.io_faults [--seed 3] [--site SUBSTRING] [--details]

The site of `bench.simulation`, without any other fault: both programs as they are, in virtual time. A first
run notes the places in the product that call `open`, `write`, `fsync`, `rename`, `unlink`, `mkdir`,
`scandir`, `stat` or `truncate`. Then one run for each place, error and duration: the call fails once in the
middle of the run, or up to 30 times in a row. The invariants of `docs/reliability.md` are checked after each:
samples are archived once or counted, verdicts are right, alarms are raised and cleared once, programs start,
end, and deliver everything.

Outcomes: *told*: the history has a WARNING or ERROR that an undisturbed run has not; *quiet*: it has none;
*ended*: a program ended with an error of its own kind, as one line, and a service manager would start it
again; *broken*: an invariant is. *Same*: the verdicts are those of the undisturbed run. Calls within
libraries, such as pyarrow's and sqlite's, are not reached, nor calls of `open` other than those of `os` and
pathlib.
"""

import argparse
import errno
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import FrameType

from bench.machine import machine
from bench.simulation import system_calls
from bench.simulation.check import differences
from bench.simulation.plan import plan_of
from bench.simulation.processes import current
from bench.simulation.simulate import Outcome, run

PRODUCT = ("laggard_agent", "laggard_aggregator", "laggard_common")
LASTING_CALLS = 30
"""Calls of a place that fail in a row where the fault lasts."""
ERRORS = {
    "write": (errno.ENOSPC, errno.EIO),
    "fsync": (errno.EIO, errno.ENOSPC),
    "fdatasync": (errno.EIO, errno.ENOSPC),
    "rename": (errno.EIO, errno.ENOSPC, errno.EACCES),
    "replace": (errno.EIO, errno.ENOSPC, errno.EACCES),
    "unlink": (errno.EIO, errno.EACCES),
    "mkdir": (errno.ENOSPC, errno.EACCES),
    "open": (errno.EIO, errno.EACCES, errno.EMFILE),
    "scandir": (errno.EIO, errno.EACCES, errno.EMFILE),
    "stat": (errno.EIO, errno.EACCES),
    "truncate": (errno.EIO,),
    "ftruncate": (errno.EIO,),
    "link": (errno.EIO, errno.EACCES),
}


CALLERS = 3
"""Lines of the stack that tell places apart: many calls are made in one function for several callers."""
OWN_ERRORS = ("ServiceError", "StateError", "ArchiveError", "SpoolError", "ConfigError")


@dataclass(slots=True)
class CallSites:
    """Counts the calls of each place; those of `failing` from `first` on, `calls` of them, raise `error`."""

    failing: tuple[str, str] | None = None
    error: int = 0
    first: int = 0
    calls: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    failed: int = 0
    programs: set[str] = field(default_factory=set)

    def __call__(self, name: str) -> OSError | None:
        """As `system_calls.Injector`."""
        place = _place()
        if place is None:
            return None
        site = (name, place)
        self.counts[site] += 1
        if site != self.failing or not self.first <= self.counts[site] < self.first + self.calls:
            return None
        self.failed += 1
        self.programs.add(current().name)
        return OSError(self.error, os.strerror(self.error))


def _place() -> str | None:
    """The nearest lines of the product on the stack of a call; None where the bench makes the call."""
    lines: list[str] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        package = module.partition(".")[0]
        if package in PRODUCT:
            lines.append(f"{module}:{frame.f_code.co_name}:{frame.f_lineno}")
            if len(lines) == CALLERS:
                break
        elif not lines and package == "bench" and module != system_calls.__name__:
            return None
        frame = frame.f_back
    return " < ".join(lines) or None


def simulated(sites: CallSites, seed: int) -> Outcome:
    """A run without any fault but those of `sites`."""
    system_calls.injector[:] = [sites]
    try:
        return run(replace(plan_of(seed), faults=()))
    finally:
        system_calls.injector.clear()


def faults(calls: Counter[tuple[str, str]]) -> Iterator[tuple[tuple[str, str], int, int, int]]:
    """Place, error, first call that fails, and number of calls that do."""
    for site, count in sorted(calls.items()):
        for error in ERRORS.get(site[0], ()):
            yield site, error, max(count // 2, 1), 1
            if count > 2:  # over before the run is, so that it can recover
                yield site, error, max(count // 3, 1), min(max(count // 3, 2), LASTING_CALLS)


def kind(outcome: Outcome, undisturbed: Outcome) -> tuple[str, str]:
    """The outcome, and the first line about it."""
    own = [
        line
        for line in outcome.problems
        if line.startswith("start:") and any(f"{name}: " in line for name in OWN_ERRORS)
    ]
    # Missing then is only that for which nobody started the program again.
    others = [line for line in outcome.problems if line not in own]
    if own and all(line.startswith(("lost", "delivery", "alarm")) for line in others):
        return "ended", own[0]
    if others:
        return "broken", others[0]
    said = _said(outcome) - _said(undisturbed)
    return ("told", next(iter(said))) if said else ("quiet", "")


def _said(outcome: Outcome) -> Counter[str]:
    texts = (event.text for event in outcome.history)
    return Counter(text for text in texts if text.startswith(("warning", "error")))


def main() -> int:
    """Prints the table; 1 where an invariant is broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=3, help="of the site")
    parser.add_argument("--site", default="", help="places whose name has this alone")
    parser.add_argument("--details", action="store_true", help="a line for each fault")
    options = parser.parse_args()
    print(machine("pyarrow"), flush=True)
    known = CallSites()
    undisturbed = simulated(known, options.seed)
    if undisturbed.problems:
        print(f"BROKEN without a fault: {undisturbed.problems[0]}")
        return 1
    table: dict[str, Counter[str]] = {}
    broken = total = 0
    for site, error, first, calls in faults(known.counts):
        name, place = site
        if options.site not in place:
            continue
        sites = CallSites(site, error, first, calls)
        disturbed = simulated(sites, options.seed)
        outcome, line = kind(disturbed, undisturbed)
        total += 1
        is_same = not differences(undisturbed.windows, disturbed.windows, undisturbed.plan.end)
        table.setdefault(name, Counter())["same"] += is_same
        broken += outcome == "broken"
        table.setdefault(name, Counter())[outcome] += 1
        if options.details or outcome == "broken":
            duration = "once" if calls == 1 else f"{sites.failed} times"
            print(
                f"{outcome}: {name} {errno.errorcode[error]} {duration} at {place}: {line[:160]}", flush=True
            )
    print(f"\n{len(known.counts)} call sites, {total} faults, {broken} broken\n")
    print("| call | sites | told | quiet | ended | broken | same |\n|---|---:|---:|---:|---:|---:|---:|")
    for name, outcomes in sorted(table.items()):
        places = sum(call == name and options.site in place for call, place in known.counts)
        row = " | ".join(str(outcomes[each]) for each in ("told", "quiet", "ended", "broken", "same"))
        print(f"| {name} | {places} | {row} |")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
