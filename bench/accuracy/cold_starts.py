"""Cold starts in groups whose healthy members differ for good: `python -m bench.accuracy.cold_starts`.

Each group is judged for HOURS from nothing. Members' factors are normal, or of Student's t with four degrees
of freedom at the same spread; in half of the groups busy time is counted. From ONSET_HOURS on some members
take longer. Prints who else has an alarm, and when the slow ones have theirs. `--seed N`, `--seeds N`,
`--only TEXT`.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from bench.machine import machine
from laggard_aggregator.alarms.judge import Judge
from laggard_aggregator.detect.interface import FloatArray, GroupWindow
from laggard_aggregator.detect.settings import DetectSettings

HOURS, ONSET_HOURS = 6.0, 3.0
SETTINGS = DetectSettings(interval_seconds=60.0, window_samples=20, shift_samples=10)
FACTORS = (1.2, 1.5, 2.0, 3.0)
MEMBERS = (8, 64, 768)
SPREADS = (0.03, 0.05, 0.1)
TAILS = ("normal", "heavy")
TICK_NOISE, NODE_NOISE, NODE_MEMBERS = 0.08, 0.05, 12
SERVICE_MS, REQUESTS = 4.0, 1800.0
BUSY_SHARE = 0.3
FREEDOM = 4
EPOCH = 1_794_009_600.0


@dataclass(frozen=True, slots=True)
class ColdStart:
    """A kind of group. `spread`: standard deviation of the logs of its healthy members' factors."""

    members: int
    spread: float
    tails: str
    busy: bool

    @property
    def name(self) -> str:
        """As `--only` selects it."""
        return f"{self.members}/{self.spread:.0%}/{self.tails}/{'busy' if self.busy else 'latency'}"

    def runs(self) -> Sequence[Sequence[float]]:
        """Factors of the slow members, run by run: in small groups one at a time."""
        return [(factor,) for factor in FACTORS] if self.members < 16 * len(FACTORS) else [FACTORS]


def windows(start: ColdStart, slow: Sequence[float], rng: np.random.Generator) -> Iterator[GroupWindow]:
    """A group's windows, of members `0` to `N - 1`, the first of which are `slow`."""
    ticks = round(HOURS * 3600.0 / SETTINGS.interval_seconds)
    shape = (start.members, ticks)
    normal, heavy = rng.standard_normal(start.members), rng.standard_t(FREEDOM, start.members)
    own = normal if start.tails == "normal" else heavy / np.sqrt(FREEDOM / (FREEDOM - 2.0))
    nodes = -(-start.members // NODE_MEMBERS)
    noise = rng.normal(0.0, TICK_NOISE, shape)
    noise += np.repeat(rng.normal(0.0, NODE_NOISE, (nodes, ticks)), NODE_MEMBERS, axis=0)[: start.members]
    # The median factor is 1, and a slow member's own is one of the middle half.
    own = start.spread * (own - np.median(own))
    own[: len(slow)] = start.spread * rng.uniform(-0.67, 0.67, len(slow))
    logs = own[:, None] + noise
    onset = round(ONSET_HOURS * 3600.0 / SETTINGS.interval_seconds)
    logs[: len(slow), onset:] += np.log(slow)[:, None]
    requests = rng.poisson(REQUESTS, shape).astype(np.float64)
    service = SERVICE_MS * np.exp(logs)
    load: dict[str, FloatArray] = {"operations": requests}
    if start.busy:
        load["busy_share"] = BUSY_SHARE * requests * service / (1000.0 * SETTINGS.interval_seconds)
    names = tuple(str(member) for member in range(start.members))
    for last in range(SETTINGS.window_samples, ticks + 1, SETTINGS.shift_samples):
        part = slice(last - SETTINGS.window_samples, last)
        begin, end = (EPOCH + SETTINGS.interval_seconds * at for at in (part.start, part.stop))
        taken = {name: amounts[:, part] for name, amounts in load.items()}
        yield GroupWindow("disks", names, begin, end, 0, {"await": service[:, part]}, taken)


def alarms(start: ColdStart, slow: Sequence[float], rng: np.random.Generator) -> dict[int, float]:
    """Minutes from the onset to the first alarm of each member that has one."""
    judge = Judge({"disks": replace(SETTINGS, tests_at_once=start.members)})
    first: dict[int, float] = {}
    for window in windows(start, slow, rng):
        for judgement in judge.evaluate(window):
            for event in judgement.transitions:
                if event.kind == "raised" and event.alarm.component.isdigit():
                    at = (window.end - EPOCH) / 60.0 - 60.0 * ONSET_HOURS
                    first.setdefault(int(event.alarm.component), at)
    return first


def row(start: ColdStart, seeds: range) -> str:
    """A line of the table."""
    delays: dict[float, list[float]] = {factor: [] for factor in FACTORS}
    healthy = named = groups = 0
    for seed in seeds:
        for number, slow in enumerate(start.runs()):
            raised = alarms(start, slow, np.random.default_rng((seed, number)))
            others = raised.keys() - range(len(slow))
            named, healthy = named + len(others), healthy + start.members - len(slow)
            groups += bool(others)
            for member, factor in enumerate(slow):
                delays[factor].append(raised.get(member, np.inf))
    cells = []
    for minutes in delays.values():
        middle = float(np.median(minutes))
        share = f"{np.isfinite(minutes).sum()} of {len(minutes)}"
        cells.append(f"{share}, {middle:.0f}" if np.isfinite(middle) else share)
    return f"| {start.name} | {named} of {healthy:,} | {groups} | {' | '.join(cells)} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.accuracy.cold_starts", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", default="", metavar="TEXT", help="groups with this in their name")
    asked = parser.parse_args()
    seeds = range(asked.seed, asked.seed + asked.seeds)
    factors = " | ".join(f"{factor:g} times: found, delay in min" for factor in FACTORS)
    print(f"| members/spread/tails/evidence | healthy named | groups with one | {factors} |")
    print("|---|---|---|" + "---|" * len(FACTORS))
    for members, spread, tails, busy in product(MEMBERS, SPREADS, TAILS, (True, False)):
        start = ColdStart(members, spread, tails, busy)
        if asked.only in start.name:
            print(row(start, seeds), flush=True)
    print(f"\n{machine('numpy')}")


if __name__ == "__main__":
    main()
