"""Real drives made slow with a known onset: `python -m bench.accuracy.injected [DIR]`, tables in Markdown.

DIR is that of `bench.accuracy.perseus`. Its faulty drives are left out of the trials; a healthy drive's
latency is multiplied from a known interval on, and in a closed loop its throughput divided by the same
factor. Drives, hosts and days are drawn by `--seed`; bounds are of resampled hosts, as drives of one host are
not independent. `--detectors cdf` trains each drive's threshold on its healthy first day. `--resolutions`
judges the labelled drives at other intervals and windows; `--duty-cycles` tells which alarms are said to be
of drives that are slow at times, and with which share and factor, `--onsets` how far from the onset the
alarms begin.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from bench.accuracy import perseus
from bench.accuracy.perseus import (
    METRIC,
    SETTINGS,
    delay_text,
    deviations,
    grids_of,
    observed_minutes,
    truth_of,
)
from bench.machine import machine
from laggard_aggregator.alarms.judge import Judge, Judgement
from laggard_aggregator.detect.interface import BoolArray, FloatArray
from laggard_aggregator.detect.registry import make_detector
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.offline.sample_grid import Grid, windows_in_order

BUDGET_DRIVES = 310
"""Series that share the budget of false alarms: those of the whole data set."""
DAYS_GAP_SECONDS = 6 * 3600.0
RESAMPLED = 2000

Pattern = Callable[[FloatArray], FloatArray]
"""From the seconds since the epoch of each interval's begin, the share of it that is slow; (T,)."""


def always(seconds: FloatArray) -> FloatArray:
    """Slow all the time."""
    return np.ones_like(seconds)


def some(on: float, period: float, interval: float = 15.0) -> Pattern:
    """Slow for `on` of every `period` seconds."""

    def share(seconds: FloatArray) -> FloatArray:
        steps = seconds[:, None] + np.arange(interval)[None, :]
        slow: FloatArray = (steps % period < on).mean(axis=1)
        return slow

    return share


@dataclass(frozen=True, slots=True)
class Case:
    """What is done to real drives.

    `of`: members of the group, 0 = all; `slow` of them become `factor` times slower where `pattern` says so,
    from `onset` on: a share of the host's intervals. Their throughput is multiplied by `load`. `days`: how
    many days from a random one, 0 = all.
    """

    name: str
    factor: float
    closed: bool = False
    pattern: Pattern = always
    load: float = 1.0
    of: int = 0
    slow: int = 1
    onset: float = 0.5
    days: int = 0
    cluster: str = ""
    trials: int = 20


CASES = (
    *(
        Case(f"{factor:g} times from the middle on, {loop} loop", factor, closed=loop == "closed")
        for factor in (1.2, 1.5, 2.0)
        for loop in ("open", "closed")
    ),
    *(Case(f"{f:g} times, noisy cluster, after days", f, cluster="cluster_J") for f in (1.5, 2.0, 3.0)),
    *(
        Case(
            f"{f:g} times, noisy cluster, after an hour",
            f,
            cluster="cluster_J",
            days=1,
            onset=1 / 3,
        )
        for f in (2.0, 3.0)
    ),
    Case("3 times for 20 s of every 60 s", 3.0, pattern=some(20, 60), closed=True),
    Case("3 times, every third interval", 3.0, pattern=some(15, 45)),
    Case("3 times for 5 of every 15 min", 3.0, pattern=some(300, 900)),
    Case("181 times in a group of one hour", 181.0, days=1, onset=1 / 3),
    *(
        Case(f"group of {of}, {slow} slow, 2 times", 2.0, of=of, slow=slow)
        for of, slow in ((4, 1), (5, 2), (6, 2), (7, 3))
    ),
    *(
        Case(f"as fast, {load:g} times the load: not to be named", 1.0, load=load)
        for load in (0.1, 0.25, 2.0)
    ),
)


HEADER = (
    "| case | named | 95 % by host | delay, min: median / p90 / max | others blamed |\n|---|---|---|---|---|"
)


DUTY_HEADER = (
    "| case | windows with a duty cycle | share: 10 % / median / 90 % | times slower then |"
    "\n|---|---|---|---|"
)


@dataclass(slots=True)
class Trials:
    """`found`: whether each slow drive was, by host; `delays` in minutes, healthy drives `blamed` newly."""

    found: dict[str, list[bool]] = field(default_factory=dict)
    delays: list[float] = field(default_factory=list)
    blamed: int = 0

    def row(self, name: str, rng: np.random.Generator) -> str:
        """A line of the table."""
        every = [one for of in self.found.values() for one in of]
        low, high = bounds(list(self.found.values()), rng)
        delay = delay_text([found for found in self.delays if np.isfinite(found)])
        return (
            f"| {name} | {sum(every)} of {len(every)} | {low:.0%} to {high:.0%} | {delay} | {self.blamed} |"
        )


def bounds(by_host: Sequence[Sequence[bool]], rng: np.random.Generator) -> tuple[float, float]:
    """The 95 % interval of a share when hosts are drawn again."""
    found = np.array([sum(one) for one in by_host], dtype=np.float64)
    of = np.array([len(one) for one in by_host], dtype=np.float64)
    drawn = rng.integers(0, found.size, (RESAMPLED, found.size))
    low, high = np.quantile(found[drawn].sum(axis=1) / of[drawn].sum(axis=1), (0.025, 0.975))
    return float(low), float(high)


def healthy_part(grid: Grid, truth: set[tuple[str, str]]) -> Grid:
    """The grid without its faulty drives."""
    return members(grid, [c for c, name in enumerate(grid.components) if (grid.group, name) not in truth])


def members(grid: Grid, rows: Sequence[int]) -> Grid:
    """The grid of some of its components."""
    return replace(
        grid,
        components=tuple(grid.components[c] for c in rows),
        metrics={name: values[list(rows)] for name, values in grid.metrics.items()},
        load={name: values[list(rows)] for name, values in grid.load.items()},
    )


def days_of(grid: Grid) -> list[slice]:
    """The blocks of each day, as spans without a gap of hours."""
    seconds = grid.blocks * grid.block_samples * grid.interval_ns / 1e9
    cuts = [0, *(np.flatnonzero(np.diff(seconds) > DAYS_GAP_SECONDS) + 1).tolist(), grid.blocks.size]
    return [slice(a, b) for a, b in pairwise(cuts)]


def blocks(grid: Grid, span: slice) -> Grid:
    """The grid of some of its blocks."""
    columns = slice(span.start * grid.block_samples, span.stop * grid.block_samples)
    return replace(
        grid,
        blocks=grid.blocks[span],
        metrics={name: values[:, columns] for name, values in grid.metrics.items()},
        load={name: values[:, columns] for name, values in grid.load.items()},
    )


def slowed(grid: Grid, case: Case, rows: Sequence[int]) -> tuple[Grid, float]:
    """A copy in which `rows` become slow, and the time of the onset."""
    size = grid.block_samples
    begin = int(case.onset * grid.blocks.size) * size
    number = (grid.blocks[:, None] * size + np.arange(size)[None, :]).ravel()
    seconds: FloatArray = number.astype(np.float64) * (grid.interval_ns / 1e9)
    share = np.where(np.arange(number.size) >= begin, case.pattern(seconds), 0.0)
    factor = 1.0 + (case.factor - 1.0) * share
    metrics = {name: values.copy() for name, values in grid.metrics.items()}
    load = {name: values.copy() for name, values in grid.load.items()}
    metrics[METRIC][list(rows)] *= factor
    for values in load.values():
        values[list(rows), begin:] *= case.load
        if case.closed:
            values[list(rows)] /= factor
    return replace(grid, metrics=metrics, load=load), float(seconds[begin])


def judged(grid: Grid, settings: DetectSettings) -> Iterator[Judgement]:
    """The judgements of one group."""
    engine = Judge({grid.group: settings})
    history = {grid.group: engine.history_samples(grid.group, METRIC)}
    for window in windows_in_order([grid], settings.window_samples, history):
        yield from engine.evaluate(window)


def alarms(grid: Grid, settings: DetectSettings) -> tuple[FloatArray, BoolArray]:
    """The windows' ends (W,), and whose alarm stood after each (W, C)."""
    ends, standing = [], []
    for one in judged(grid, settings):
        ends.append(one.end)
        stands = dict(zip(one.components, one.straggler.tolist(), strict=True))
        standing.append([stands.get(name, False) for name in grid.components])
    return np.array(ends), np.array(standing, dtype=np.bool_).reshape(len(ends), len(grid.components))


_UNTOUCHED: dict[tuple[str, tuple[str, ...], int, str], BoolArray] = {}


def untouched(grid: Grid, settings: DetectSettings) -> BoolArray:
    """Whose alarm stood in the grid as it is; computed once for each."""
    key = (grid.group, grid.components, int(grid.blocks[0]) * grid.blocks.size, settings.detector)
    if key not in _UNTOUCHED:
        _UNTOUCHED[key] = alarms(grid, settings)[1]
    return _UNTOUCHED[key]


def forget_untouched() -> None:
    """For a detector that has changed."""
    _UNTOUCHED.clear()


def drawn(case: Case, grids: Sequence[Grid], rng: np.random.Generator) -> tuple[Grid, list[int]]:
    """A host, or a part of it, and its members that become slow."""
    grid = grids[int(rng.integers(len(grids)))]
    if case.days:
        spans = days_of(grid)
        first = int(rng.integers(len(spans) - case.days + 1))
        grid = blocks(grid, slice(spans[first].start, spans[first + case.days - 1].stop))
    chosen = rng.permutation(len(grid.components))
    if case.of:
        grid, chosen = members(grid, chosen[: case.of].tolist()), rng.permutation(case.of)
    return grid, chosen[: case.slow].tolist()


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A grid as it is and `changed`, in which `rows` are slow from `onset` on, epoch seconds."""

    grid: Grid
    changed: Grid
    rows: Sequence[int]
    onset: float


def injected_faults(case: Case, grids: Sequence[Grid], rng: np.random.Generator) -> Iterator[InjectedFault]:
    """As many as the case has trials, each on drives that are drawn anew."""
    usable = [grid for grid in grids if grid.group.startswith(case.cluster)]
    for _ in range(case.trials):
        grid, rows = drawn(case, usable, rng)
        changed, onset = slowed(grid, case, rows)
        yield InjectedFault(grid, changed, rows, onset)


def run(case: Case, grids: Sequence[Grid], detector: str, rng: np.random.Generator) -> Trials:
    """Who is named in the trials of a case, and when."""
    done = Trials()
    for each in injected_faults(case, grids, rng):
        settings = settings_for(detector, each.grid)
        before = untouched(each.grid, settings)
        ends, after = alarms(each.changed, settings)
        since = ends > each.onset
        raised = after[since]
        for row in each.rows:
            named = bool(raised[:, row].any())
            done.found.setdefault(each.grid.group, []).append(named)
            alarm = float(ends[since][raised[:, row].argmax()]) if named else np.inf
            done.delays.append(observed_minutes(each.changed, each.onset, alarm) if named else np.inf)
        others = [c for c in range(len(each.grid.components)) if c not in each.rows]
        done.blamed += int((after[:, others].any(axis=0) & ~before[:, others].any(axis=0)).sum())
    return done


def duty_cycles(case: Case, grids: Sequence[Grid], rng: np.random.Generator) -> str:
    """A line of the table of duty cycles: in which of the slow drives' alarm windows `laggard` tells one."""
    windows, told = 0, []
    for each in injected_faults(case, grids, rng):
        names = {each.grid.components[row] for row in each.rows}
        for one in judged(each.changed, settings_for("laggard", each.grid)):
            for c in np.flatnonzero(one.straggler & one.verdicts.anomalous & (one.end > each.onset)):
                if one.components[c] in names:
                    windows += 1
                    cycle = one.verdicts.duty_cycles.get(one.components[c])
                    told += [] if cycle is None else [(cycle.share, cycle.severity)]
    if not told:
        return f"| {case.name} | 0 of {windows:,} | | |"
    of = np.quantile(np.array(told), (0.1, 0.5, 0.9), axis=0)
    share, times = " / ".join(f"{s:.0%}" for s in of[:, 0]), " / ".join(f"{t:.1f}" for t in of[:, 1])
    return f"| {case.name} | {len(told):,} of {windows:,} | {share} | {times} |"


def onsets(case: Case, grids: Sequence[Grid], rng: np.random.Generator) -> str:
    """A line of the table of onsets: windows from the true one to where the alarms of `laggard` begin."""
    first, since = [], []
    for each in injected_faults(case, grids, rng):
        name, starts, flags = each.grid.components[each.rows[0]], [], []
        for one in judged(each.changed, settings_for("laggard", each.grid)):
            c = one.components.index(name)
            starts.append(one.start)
            flags.append(bool(one.verdicts.anomalous[c]))
            if one.straggler[c] and one.end > each.onset:
                recent = range(max(len(flags) - 2 * SETTINGS.confirm + 1, 0), len(flags))
                true, told = np.searchsorted(starts, [each.onset - 1.0, one.since[c] - 1.0])
                first.append(min(at for at in recent if flags[at]) - true)
                since.append(told - true)
                break
    cells = (" / ".join(f"{q:.0f}" for q in np.quantile(of, (0.1, 0.5, 0.9))) for of in (first, since))
    return f"| {case.name} | {len(since)} | {' | '.join(cells)} |"


def settings_for(detector: str, grid: Grid) -> DetectSettings:
    """The default configuration; `cdf` with thresholds from the first day of the untouched grid."""
    settings = replace(SETTINGS, detector=detector, tests_at_once=BUDGET_DRIVES)
    if detector == "cdf":
        own = dict(zip(grid.components, deviations(grid).tolist(), strict=True))
        settings = replace(settings, thresholds={METRIC: own})
    return settings


def cold_starts(grids: Sequence[Grid], truth: set[tuple[str, str]], detector: str) -> str:
    """Every evening of every host from nothing: who is named, and when."""
    wrong, healthy, first_hour, found, ill, delays = 0, 0, 0, 0, 0, []
    for grid in grids:
        for span in days_of(grid):
            evening = blocks(grid, span)
            settings = settings_for(detector, evening)
            ends, standing = alarms(evening, settings)
            hour = round(3600.0 / settings.shift_seconds)
            for c, name in enumerate(evening.components):
                ever = bool(standing[:, c].any())
                if (grid.group, name) in truth:
                    ill += 1
                    found += ever
                    alarm = float(ends[standing[:, c].argmax()]) if ever else np.inf
                    delays.append(observed_minutes(evening, 0.0, alarm) if ever else np.inf)
                else:
                    healthy += 1
                    wrong += ever
                    first_hour += bool(standing[:hour, c].any())
    return (
        f"{detector}, every evening from nothing: healthy drives alarmed {wrong} of {healthy:,} "
        f"drive-evenings ({first_hour} in the first hour); faulty found {found} of {ill}, "
        f"delay {delay_text(delays)} min"
    )


def coarser(grid: Grid, times: int, window: int) -> Grid:
    """The same drives sampled at `times` the interval, as means by bytes moved, in blocks of `window`."""
    size = grid.block_samples
    number = (grid.blocks[:, None] * size + np.arange(size)).ravel() // times
    ids, where = np.unique(number, return_inverse=True)
    (name, moved), latency = next(iter(grid.load.items())), grid.metrics[METRIC]
    known = np.isfinite(latency) & np.isfinite(moved)

    def sums(values: FloatArray) -> FloatArray:
        return np.array([np.bincount(where, row, ids.size) for row in np.where(known, values, 0.0)])

    count, weight, spent = sums(np.ones_like(latency)), sums(moved), sums(latency * moved)
    kept = np.unique(ids // window)
    at = np.searchsorted(kept, ids // window) * window + ids % window
    found = np.full((2, len(latency), kept.size * window), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        found[0][:, at] = np.where(weight > 0, spent / weight, np.nan)
        found[1][:, at] = np.where(count > 0, weight / count, np.nan)
    metrics, load = {METRIC: found[0]}, {name: found[1]}
    return Grid(grid.group, grid.components, grid.interval_ns * times, window, kept, metrics, load)


RESOLUTIONS = ((1, 5), (1, 10), (1, 20), (4, 5), (4, 20), (20, 5), (20, 20))
"""How many times the interval of 15 s, and samples in a window."""


def resolutions(grids: Sequence[Grid], truth: set[tuple[str, str]]) -> Iterator[str]:
    """The labelled drives through `laggard` at other intervals and windows: a table's lines."""
    yield perseus.HEADER
    for times, window in RESOLUTIONS:
        settings = DetectSettings(interval_seconds=15.0 * times, window_samples=window, shift_samples=window)
        coarse = [coarser(grid, times, window) for grid in grids]
        found = perseus.judgements(coarse, {}, make_detector, settings)
        yield perseus.result_of(coarse, found, truth, settings).row(f"{15 * times} s, {window} samples")


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.accuracy.injected", description=__doc__.split("\n")[0]
    )
    parser.add_argument("directory", type=Path, nargs="?", default=Path("../shared/data/perseus_failslow"))
    parser.add_argument("--seed", type=int, default=1, help="draws drives, hosts and days")
    parser.add_argument("--detectors", default="laggard,cdf", help="which detectors, by comma")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases with TEXT in their name")
    parser.add_argument("--cold", action="store_true", help="every evening from nothing instead of the cases")
    parser.add_argument("--resolutions", action="store_true", help="other intervals and windows instead")
    parser.add_argument("--duty-cycles", action="store_true", help="of the cases, the duty cycles instead")
    parser.add_argument("--onsets", action="store_true", help="of the cases that last, the onsets instead")
    asked = parser.parse_args()
    truth = truth_of(asked.directory)
    grids = grids_of(asked.directory)
    if asked.resolutions:
        for line in resolutions(grids, truth):
            print(line, flush=True)
    if asked.duty_cycles:
        healthy = [healthy_part(grid, truth) for grid in grids]
        print(DUTY_HEADER)
        for number, case in enumerate(CASES):
            if asked.only in case.name:
                print(duty_cycles(case, healthy, np.random.default_rng((asked.seed, number))), flush=True)
    if asked.onsets:
        healthy = [healthy_part(grid, truth) for grid in grids]
        print("| case | alarms | first anomalous window: 10 % / median / 90 % | `since` |\n|---|---|---|---|")
        for number, case in enumerate(CASES):
            if asked.only in case.name and case.pattern is always and case.factor > 1 and not case.of:
                print(onsets(case, healthy, np.random.default_rng((asked.seed, number))), flush=True)
    for detector in (
        [] if asked.resolutions or asked.duty_cycles or asked.onsets else asked.detectors.split(",")
    ):
        if asked.cold:
            print(cold_starts(grids, truth, detector), flush=True)
            continue
        healthy = [healthy_part(grid, truth) for grid in grids]
        print(f"\n`{detector}`, seed {asked.seed}\n\n{HEADER}")
        for number, case in enumerate(CASES):
            if asked.only in case.name:
                rng = np.random.default_rng((asked.seed, number))
                print(run(case, healthy, detector, rng).row(case.name, rng), flush=True)
    print(f"\n{machine('numpy', 'scipy')}")


if __name__ == "__main__":
    main()
