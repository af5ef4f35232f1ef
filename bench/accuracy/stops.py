"""Devices that stop at times, request by request: `python -m bench.accuracy.stops`, a table in Markdown.

Shares no code, model or parameter with the detector and the other generators. Single requests arrive at each
disk of a group, wait while it stops, are served, and are counted as the kernel counts them in
/proc/diskstats; the counters are read every 1 or 15 s, become metrics by the product's definitions, and are
judged by the engine of `laggard diagnose`. One disk of a group stops for some seconds every few minutes
in the middle third of a day; all of them collect garbage, which stops each for 0.1 to 1 s at random, up to
four times as often where it is busy. `--controls N` judges N healthy component-days.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from bench.machine import machine
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.metrics.block import BLOCK
from laggard_aggregator.metrics.definition import Differences
from laggard_aggregator.offline.run import run_grids
from laggard_aggregator.offline.sample_grid import NS, Grid

Array = NDArray[np.float64]
Random = np.random.Generator

DAY = 86_400.0
FAULT = (DAY / 3.0, DAY * 2.0 / 3.0)
EPOCH = 1_800_000_000
LOADS = ("steady", "jobs", "bursts")
KINDS = ("disk", "flash")
MEMBERS = (8, 16, 24, 48)
SECONDS_AND_PERIODS = ((2.0, 300.0), (2.0, 1200.0), (5.0, 600.0), (10.0, 300.0), (10.0, 1200.0))
POSITION_SECONDS, BYTES_PER_SECOND = 0.008, 150e6
FLASH_SECONDS = 0.0006
COLLECTED_SECONDS, COLLECTED_EVERY = (0.1, 1.0), 360.0
"""Lengths of garbage collections, and the mean time from one to the next of an idle disk."""
BUSIEST = 4.0
"""How many times as often a busy disk collects garbage."""
FIELDS = ("rd_ios", "rd_sectors", "rd_ms", "wr_ios", "wr_sectors", "wr_ms", "io_ms")


@dataclass(frozen=True, slots=True)
class StopRun:
    """One day of one group. `stop_seconds` every `period`, give or take a tenth; 0: no disk is faulty.

    `kind`: a disk that serves one request at a time, or flash that serves all at once. `late`: busy time is
    counted when a request completes only, as some kernels do.
    """

    interval: float
    load: str
    kind: str
    members: int
    stop_seconds: float = 0.0
    period: float = 600.0
    collects: bool = True
    late: bool = False


@dataclass(frozen=True, slots=True)
class Requests:
    """Of one disk over a day: arrival, seconds; sectors; whether each reads; (N,) each, by arrival."""

    arrived: Array
    sectors: Array
    reads: NDArray[np.bool_]


def requests_of(rng: Random, load: str, pace: float) -> Requests:
    """Requests of one disk at a kind of load. `pace`: that of its group, by which all go alike."""
    if load == "steady":
        spans = [(0.0, DAY, 25.0 * pace, 64.0)]
    elif load == "jobs":
        spans = [(0.0, DAY, 1.0, 8.0)]
        begin = float(rng.exponential(1800.0))
        while begin < DAY:
            end = begin + float(rng.lognormal(np.log(900.0), 0.6))
            sectors = float(rng.choice([8.0, 64.0, 512.0]))
            usual = POSITION_SECONDS + sectors * 512.0 / BYTES_PER_SECOND
            spans.append((begin, min(end, DAY), float(rng.uniform(0.2, 0.8)) / usual, sectors))
            begin = end + float(rng.exponential(1800.0))
    else:
        spans = [(0.0, DAY, 8.0, 64.0)]
        for begin in np.cumsum(rng.exponential(180.0, int(DAY / 90.0))):
            if begin < DAY - 20.0:
                length = float(rng.uniform(1.0, 10.0))
                spans.append(
                    (float(begin), float(begin) + length, float(rng.uniform(50, 400)) / length, 64.0)
                )
    parts = []
    for begin, end, rate, sectors in spans:
        count = int(rng.poisson(rate * (end - begin)))
        reads = rng.random(count) < rng.uniform(0.3, 0.9)
        parts.append((rng.uniform(begin, end, count), np.full(count, sectors), reads))
    arrived, sizes, is_read = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(arrived, kind="stable")
    return Requests(arrived[order], sizes[order], is_read[order])


def collections(rng: Random, asked: Requests) -> Array:
    """Garbage collections of one disk, (K, 2): begin and length."""
    count = rng.poisson(DAY * BUSIEST / COLLECTED_EVERY)
    begins = np.sort(rng.uniform(0.0, DAY, count))
    nearby = np.searchsorted(asked.arrived, begins + 30.0) - np.searchsorted(asked.arrived, begins - 30.0)
    share = (1.0 + (BUSIEST - 1.0) * np.clip(nearby / (60.0 * 40.0), 0.0, 1.0)) / BUSIEST
    begins = begins[rng.random(count) < share]
    return np.column_stack([begins, rng.uniform(*COLLECTED_SECONDS, begins.size)])


def faults(rng: Random, run: StopRun) -> Array:
    """Stops of the faulty disk, (K, 2): begin and length."""
    count = int((FAULT[1] - FAULT[0]) / run.period)
    begins = FAULT[0] + run.period * (np.arange(count) + 0.5 + rng.uniform(-0.1, 0.1, count))
    return np.column_stack([begins, np.full(count, run.stop_seconds)])


def completed(rng: Random, asked: Requests, stops: Array, kind: str) -> Array:
    """When each request completes, seconds; (N,). Nothing is served during `stops` (K, 2).

    Time that a disk works runs on a clock of its own, which stands still during stops.
    """
    merged: list[list[float]] = []
    for begin, seconds in stops[np.argsort(stops[:, 0])].tolist():
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], begin + seconds)
        else:
            merged.append([begin, begin + seconds])
    spans = np.array(merged).reshape(-1, 2)
    lengths = spans[:, 1] - spans[:, 0]
    before = np.concatenate([[0.0], np.cumsum(lengths)])  # stopped before each stop
    at_stop = spans[:, 0] - before[:-1]  # each stop's begin by the working clock
    since = np.searchsorted(spans[:, 0], asked.arrived, side="right") - 1
    inside = np.clip(asked.arrived - spans[since, 0], 0.0, lengths[since]) if spans.size else 0.0
    worked = asked.arrived - np.where(since >= 0, before[np.maximum(since, 0)] + inside, 0.0)
    if kind == "flash":
        done = worked + rng.gamma(4.0, FLASH_SECONDS / 4.0, worked.size)
    else:
        mean = POSITION_SECONDS + asked.sectors * 512.0 / BYTES_PER_SECOND
        service = mean * rng.gamma(6.0, 1.0 / 6.0, worked.size)
        total = np.cumsum(service)
        done = total + np.maximum.accumulate(worked - (total - service))
    after: Array = done + before[np.searchsorted(at_stop, done, side="right")] if spans.size else done
    return after


def counted(asked: Requests, done: Array, ticks: Array, *, late: bool) -> Array:
    """The kernel's counters at `ticks` (T,): (T, FIELDS), whole numbers that grow."""
    order = np.argsort(done, kind="stable")
    upto = np.searchsorted(done[order], ticks, side="right")
    columns = []
    for reads in (True, False):
        mine = asked.reads[order] == reads
        for amounts in (np.ones_like(done), asked.sectors, np.floor((done - asked.arrived) * 1000.0)):
            sums = np.concatenate([[0.0], np.cumsum(np.where(mine, amounts[order], 0.0))])
            columns.append(sums[upto])
    latest = np.maximum.accumulate(done)  # busy until then with those that arrived so far
    idle = np.maximum(asked.arrived[1:] - latest[:-1], 0.0)
    gaps = np.flatnonzero(idle > 0.0)
    ends = np.concatenate([[asked.arrived[0]], idle[gaps], [np.inf]])
    begins = np.concatenate([[0.0], latest[gaps], latest[-1:]])
    passed = np.concatenate([[0.0], np.cumsum(ends)])
    at = np.searchsorted(begins, ticks, side="right")
    busy = ticks - passed[at - 1] - np.minimum(ticks - begins[at - 1], ends[at - 1])
    if late:  # what was busy since the last completion or arrival after an idle time is not counted yet
        last = np.concatenate([[0.0], done[order]])[upto]
        under_way = np.searchsorted(asked.arrived, ticks, side="right") > upto
        since = np.maximum(last, begins[at - 1] + ends[at - 1])
        busy -= np.where(under_way, np.maximum(ticks - since, 0.0), 0.0)
    return np.column_stack([*columns, np.floor(busy * 1000.0)])


def grid_of(run: StopRun, rng: Random) -> tuple[Grid, str]:
    """The samples of a run as `laggard diagnose` has them, and the faulty disk, empty where there is none."""
    settings = settings_of(run)
    samples = int(DAY / run.interval) // settings.shift_samples * settings.shift_samples
    ticks: Array = np.arange(samples + 1, dtype=np.float64) * run.interval
    names = tuple(f"oss-{c // 8 + 1}/sd{chr(97 + c % 8)}" for c in range(run.members))
    ill = int(rng.integers(run.members)) if run.stop_seconds else -1
    pace = float(rng.uniform(0.5, 1.5))
    columns, loads = BLOCK.kept(["await"])
    values = {name: np.empty((run.members, samples)) for name in (*columns, *loads)}
    for member in range(run.members):
        asked = requests_of(rng, run.load, pace)
        stops = collections(rng, asked) if run.collects else np.empty((0, 2))
        if member == ill:
            stops = np.concatenate([stops, faults(rng, run)])
        counters = counted(asked, completed(rng, asked, stops, run.kind), ticks, late=run.late)
        rises = np.diff(counters, axis=0)
        every = np.column_stack([rises, np.zeros((samples, 3))])
        differences = Differences(
            (*FIELDS, "dc_ios", "dc_sectors", "dc_ms"), every, np.full(samples, run.interval)
        )
        for name, metric in (*columns.items(), *loads.items()):
            values[name][member] = metric.derive(differences).astype(np.float32)  # as the daemon keeps them
    interval_ns = round(run.interval * NS)
    first = EPOCH * NS // interval_ns // settings.shift_samples
    grid = Grid(
        "luns",
        names,
        interval_ns,
        settings.shift_samples,
        first + np.arange(samples // settings.shift_samples),
        {name: values[name] for name in columns},
        {name: values[name] for name in loads},
    )
    return grid, names[ill] if ill >= 0 else ""


def settings_of(run: StopRun) -> DetectSettings:
    """The product's defaults at the run's interval; windows of a minute where it is 1 s."""
    return DetectSettings(interval_seconds=run.interval)


@dataclass(slots=True)
class StopOutcome:
    """`found`: the faulty disk got an alarm; `delay` from the fault's begin to it, `cleared` from its end on
    to the last one's, minutes. `blamed`: others that ever got one, and `stopped` of them for their stops.
    `text`: evidence of the alarm.
    """

    found: bool = False
    delay: float = np.nan
    cleared: float = np.nan
    blamed: frozenset[str] = frozenset()
    stopped: frozenset[str] = frozenset()
    text: str = ""


def judged(run: StopRun, seed: int) -> StopOutcome:
    """The outcome of a run by the engine of `laggard diagnose`."""
    grid, ill = grid_of(run, np.random.default_rng(seed))
    begin, end = (EPOCH + at for at in FAULT)
    offline = run_grids([grid], settings_of(run))
    outcome = StopOutcome()
    for judgement in offline.judgements:
        for event in judgement.transitions:
            if event.alarm.component != ill:
                outcome.blamed |= {event.alarm.component}
                if text_of(judgement, event.alarm.component):
                    outcome.stopped |= {event.alarm.component}
            elif event.kind == "raised" and event.at <= end + run.period and not outcome.found:
                outcome.found, outcome.delay = True, (event.at - begin) / 60.0
            elif event.kind == "cleared":
                outcome.cleared = (event.at - end) / 60.0
        outcome.text = text_of(judgement, ill) or outcome.text
    return outcome


def text_of(judgement: Judgement, component: str) -> str:
    """The evidence that an anomalous component's verdict tells; empty for any other."""
    if component not in judgement.components:
        return ""
    row = judgement.components.index(component)
    told = getattr(judgement.verdicts, "stops", {}).get(component)
    return told.text() if told is not None and judgement.straggler[row] else ""


def runs(interval: float, tries: int) -> Iterator[tuple[StopRun, int]]:
    """Faulty runs and their seeds: all stops at all loads, in groups of all sizes and both kinds in turns."""
    rows = product(LOADS, SECONDS_AND_PERIODS, range(tries))
    for number, (load, (seconds, period), _) in enumerate(rows, 1):
        members, kind = MEMBERS[number % len(MEMBERS)], KINDS[number % 3 == 0]
        run = StopRun(interval, load, kind, members, seconds, period, late=number % 5 == 0)
        yield replace(run, collects=number % 4 != 1), 7_000_000 + number


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a row for each load and stop, or the controls'."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tries", type=int, default=4, metavar="N", help="runs of each row")
    parser.add_argument("--controls", type=int, default=0, metavar="N", help="healthy component-days instead")
    parser.add_argument("--interval", type=float, action="append", metavar="SECONDS", help="1 or 15; both")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="other numbers")
    asked = parser.parse_args(arguments)
    for interval in asked.interval or (15.0, 1.0):
        if asked.controls:
            controls(interval, asked.controls, asked.seed)
        else:
            faulty(interval, asked.tries, asked.seed)
    print(f"\n{machine('numpy', 'scipy')}")


def faulty(interval: float, tries: int, seed: int) -> None:
    """Prints the rows of faulty groups."""
    print(f"\nSamples of {interval:g} s\n")
    print("| load | stops | found | delay, min | cleared after, min | others blamed, for stops |")
    print("|---|---|---|---|---|---|", flush=True)
    outcomes: list[StopOutcome] = []
    for run, number in runs(interval, tries):
        outcomes.append(judged(run, number + seed))
        if len(outcomes) == tries:
            known = [one.delay for one in outcomes if one.found]
            delays = f"{np.median(known):.0f}, at most {max(known):.0f}" if known else "-"
            ends = [one.cleared for one in outcomes if np.isfinite(one.cleared)]
            cleared = f"{np.median(ends):.0f}, at most {max(ends):.0f}" if ends else "-"
            blamed = f"{sum(len(o.blamed) for o in outcomes)}, {sum(len(o.stopped) for o in outcomes)}"
            stops = f"{run.stop_seconds:g} s every {run.period / 60:g} min"
            row = (run.load, stops, f"{len(known)} of {tries}", delays, cleared, blamed)
            print(f"| {' | '.join(row)} |", flush=True)
            outcomes = []


def controls(interval: float, component_days: int, seed: int) -> None:
    """Prints how many healthy disks that collect garbage got an alarm, by load."""
    print(f"\nHealthy, samples of {interval:g} s\n\n| load | component-days | alarmed | for stops |")
    print("|---|---|---|---|")
    days, blamed, stopped, number = Counter[str](), Counter[str](), Counter[str](), 0
    while sum(days.values()) < component_days:
        load, members = LOADS[number % 3], MEMBERS[number // 3 % len(MEMBERS)]
        run = StopRun(interval, load, KINDS[number // 2 % 2], members, late=number % 5 == 0)
        outcome = judged(run, 8_000_000 + seed + number)
        blamed[load] += len(outcome.blamed)
        stopped[load] += len(outcome.stopped)
        days[load] += members
        number += 1
    for load in LOADS:
        print(f"| {load} | {days[load]} | {blamed[load]} | {stopped[load]} |", flush=True)


if __name__ == "__main__":
    main()
