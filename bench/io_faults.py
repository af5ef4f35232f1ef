"""Agents and an aggregator under a fault of one I/O call at a time, over every call site that a run reaches.

    python -m bench.io_faults [--seeds 3,17] [--site SUBSTRING] [--details]

Sites of `bench.simulation`, without any other fault: both programs as they are, in virtual time. That of seed
17 has jobs: documents in outboxes, rollups, joins, the index, verdicts and mails; of it only the places count
that the site before does not reach. A first run notes the places in the product that call `open`, `write`,
`fsync`, `rename`, `unlink`, `mkdir`, `scandir`, `stat`, `truncate` or `mmap`. Then one run for each place,
error and duration: the call fails once in the middle of the run, or each time for 30 s (longer by the pace of
the site). Writes are also cut short, without an error. A program that ends with an error of its own is
started again after 5 s, as by systemd. The invariants of `docs/reliability.md` are checked after each:
samples are archived once or counted, verdicts are right, alarms are raised and cleared once, programs start,
end, and deliver everything.

Outcomes: *told*: the history has a WARNING or ERROR that an undisturbed run has not; *quiet*: it has none;
*ended*: a program ended with an error of its own kind, as one line, and went on when it was started again;
*broken*: an invariant is. *Same*: the verdicts are those of the undisturbed run. Calls within libraries, such
as pyarrow's and sqlite's, are not reached, nor calls of `open` other than those of `os` and pathlib.
"""

import argparse
import asyncio
import errno
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import FrameType

from bench.machine import machine
from bench.simulation import system_calls
from bench.simulation.check import differences
from bench.simulation.plan import Plan, plan_of
from bench.simulation.processes import current
from bench.simulation.simulate import Outcome, run
from bench.simulation.site import ENDED

PRODUCT = ("laggard_agent", "laggard_aggregator", "laggard_common")
LASTING_SECONDS = 30.0
"""Time for which all calls of a place fail where the fault lasts, multiplied by the site's pace."""
SHORT_WRITE = 0
"""In place of an error: a `write` takes half of its bytes."""
ERRORS = {
    "write": (errno.ENOSPC, errno.EIO, SHORT_WRITE),
    "mmap": (errno.ENOMEM,),
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


@dataclass(slots=True)
class CallSites:
    """Counts the calls of each place; those of `failing` raise `error`, from number `first` on.

    `seconds`: for how long, 0 for one call.
    """

    failing: tuple[str, str] | None = None
    error: int = 0
    first: int = 0
    seconds: float = 0.0
    until: float = math.inf
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
        if site != self.failing or self.counts[site] < self.first:
            return None
        now = asyncio.get_running_loop().time()
        if self.until == math.inf:
            self.until = now + self.seconds
        elif now >= self.until:
            return None
        self.failed += 1
        self.programs.add(current().name)
        return OSError(self.error, os.strerror(self.error)) if self.error else system_calls.ShortWrite()


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


def simulated(sites: CallSites, plan: Plan) -> Outcome:
    """A run without any fault but those of `sites`."""
    system_calls.injector[:] = [sites]
    try:
        return run(plan, restarts=True)
    finally:
        system_calls.injector.clear()


def faults(calls: Counter[tuple[str, str]], pace: float) -> Iterator[CallSites]:
    """Each fault of each place: once in the middle, and from a third on for a time."""
    for site, count in sorted(calls.items()):
        for error in ERRORS.get(site[0], ()):
            yield CallSites(site, error, max(count // 2, 1))
            if count > 2:  # over before the run is, so that it can recover
                yield CallSites(site, error, max(count // 3, 1), pace * LASTING_SECONDS)


def kind(outcome: Outcome, undisturbed: Outcome) -> tuple[str, str]:
    """The outcome, and the first line about it."""
    if outcome.problems:
        return "broken", outcome.problems[0]
    ended = [event for event in outcome.history if event.text.startswith(ENDED)]
    if ended:
        return "ended", f"{ended[0].source} {ended[0].text}"
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
    parser.add_argument("--seeds", type=_numbers, default=(3, 17), help="of the sites")
    parser.add_argument("--site", default="", help="places whose name has this alone")
    parser.add_argument("--details", action="store_true", help="a line for each fault")
    options = parser.parse_args()
    print(machine("pyarrow"), flush=True)
    table: dict[str, Counter[str]] = {}
    known = set[tuple[str, str]]()
    for seed in options.seeds:
        plan = replace(plan_of(seed), faults=())
        calls = CallSites()
        undisturbed = simulated(calls, plan)
        if undisturbed.problems:
            print(f"BROKEN without a fault: {undisturbed.problems[0]}")
            return 1
        new = Counter({site: calls.counts[site] for site in calls.counts.keys() - known})
        known |= new.keys()
        for sites in faults(new, plan.pace):
            assert sites.failing is not None
            if options.site in sites.failing[1]:
                _try(sites, plan, undisturbed, table, details=options.details)
    total = sum(sum(outcomes.values()) - outcomes["same"] for outcomes in table.values())
    broken = sum(outcomes["broken"] for outcomes in table.values())
    print(f"\n{len(known)} call sites, {total} faults, {broken} broken\n")
    print("| call | sites | told | quiet | ended | broken | same |\n|---|---:|---:|---:|---:|---:|---:|")
    for name, outcomes in sorted(table.items()):
        places = sum(call == name and options.site in place for call, place in known)
        row = " | ".join(str(outcomes[each]) for each in ("told", "quiet", "ended", "broken", "same"))
        print(f"| {name} | {places} | {row} |")
    return 1 if broken else 0


def _try(
    sites: CallSites, plan: Plan, undisturbed: Outcome, table: dict[str, Counter[str]], *, details: bool
) -> None:
    """Runs the site with one fault, counts its outcome in `table`, and prints it where it is of interest."""
    assert sites.failing is not None
    name, place = sites.failing
    disturbed = simulated(sites, plan)
    outcome, line = kind(disturbed, undisturbed)
    is_same = not differences(undisturbed.windows, disturbed.windows, plan.end)
    table.setdefault(name, Counter())["same"] += is_same
    table[name][outcome] += 1
    if details or outcome == "broken" or not is_same:
        error = errno.errorcode[sites.error] if sites.error else "short"
        duration = f"{sites.failed} times" if sites.seconds else "once"
        verdicts = "" if is_same else ", other verdicts"
        print(f"{outcome}{verdicts}: {name} {error} {duration} at {place}: {line[:160]}", flush=True)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    raise SystemExit(main())
