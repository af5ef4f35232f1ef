"""Windows from recovery to the clearing of alarms, and alarms raised falsely after it.

Groups of 6 to 64 with noise of 3 to 50 %, one member 1.5 to 6 times slower for 20 minutes to a day, then
healthy for eight hours; and intermittent faults, which are to stay one episode. Judged as the daemon judges:
samples of 15 s, windows of 15 minutes every 7.5.

    python -m bench.accuracy.clearing [--seeds 2] [--intermittent]
"""

import argparse
import itertools
from dataclasses import dataclass

import numpy as np

from laggard_aggregator.alarms.judge import Judge
from laggard_aggregator.detect.interface import FloatArray, GroupWindow
from laggard_aggregator.detect.settings import DetectSettings

SETTINGS = DetectSettings(interval_seconds=15.0, window_samples=60, shift_samples=30)
SHIFT, WINDOW, STEP = 30, 60, 450.0
BEFORE, AFTER = 32, 64
SIZES = (6, 16, 64)
NOISES = (0.03, 0.2, 0.5)
FACTORS = (1.5, 6.0)
LASTING = (80, 160, 960, 5760)
"""In samples: 20 and 40 minutes, 4 hours and a day."""
CYCLES = {
    "5 of 15 minutes": (20, 60),
    "15 of 60 seconds, every minute": (1, 4),
    "20 of 60 minutes": (80, 240),
}


@dataclass(frozen=True, slots=True)
class Event:
    """An alarm raised or cleared `at` windows (of new samples) after the recovery."""

    kind: str
    member: str
    at: float


def events(level: FloatArray, size: int, noise: float, seed: int, recovered: int) -> list[Event]:
    """The alarms of a group whose member 0 is `level` (T,) times slower; recovery at sample `recovered`."""
    rng = np.random.default_rng(seed)
    names = tuple(f"oss-{n}/sda" for n in range(size))
    steady = 5.0 * np.exp(0.03 * rng.standard_normal((size, 1)))
    values = steady * np.exp(noise * rng.standard_normal((size, level.size)))
    values[0] *= level
    judge, happened = Judge({"disks": SETTINGS}), list[Event]()
    for end in range(WINDOW, level.size + 1, SHIFT):
        start = 1_760_000_000.0 + 15.0 * (end - WINDOW)
        span = values[:, end - WINDOW : end]
        (judged,) = judge.evaluate(GroupWindow("disks", names, start, start + 900.0, 0, {"await": span}))
        at = (end - recovered) / SHIFT
        happened += [Event(t.kind, t.alarm.component, at) for t in judged.transitions]
    return happened


def main() -> None:
    """Prints the table of steady faults, by length and factor, or that of intermittent ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--intermittent", action="store_true", help="only faults that come and go")
    options = parser.parse_args()
    (_intermittent if options.intermittent else _steady)(range(options.seeds))


def _steady(seeds: range) -> None:
    delays, late, others = list[float](), 0, 0
    print(f"{'minutes':>8} {'times':>6} {'runs':>5} {'alarmed':>8} {'median':>7} {'95 %':>6} {'false':>6}")
    for lasting, factor in itertools.product(LASTING, FACTORS):
        cell, false, alarmed, runs = list[float](), 0, 0, 0
        for size, noise, seed in itertools.product(SIZES, NOISES, seeds):
            begin = BEFORE * SHIFT
            level = np.ones(begin + lasting + AFTER * SHIFT)
            level[begin : begin + lasting] = factor
            happened = events(level, size, noise, 1000 * seed + size, begin + lasting)
            runs += 1
            others += sum(e.kind == "raised" and not e.member.startswith("oss-0/") for e in happened)
            # A window with slow samples in it may raise.
            false += sum(e.kind == "raised" and e.at >= 1 and e.member == "oss-0/sda" for e in happened)
            mine = [e for e in happened if e.member == "oss-0/sda"]
            alarmed += any(e.kind == "raised" for e in mine)
            last = [e.at for e in mine if e.kind == "cleared" and e.at > 0]
            standing = sum(e.kind == "raised" for e in mine) - sum(e.kind == "cleared" for e in mine)
            cell += last[:1] or ([AFTER] if standing else [])
        delays += cell
        late += false
        middle, high = np.quantile(cell, (0.5, 0.95)) if cell else (np.nan, np.nan)
        print(
            f"{lasting / 4:8.0f} {factor:6.1f} {runs:5} {alarmed:8} {middle:7.1f} {high:6.1f} {false:6}",
            flush=True,
        )
    middle, high = np.quantile(delays, (0.5, 0.95))
    print(f"all: median {middle:.1f}, 95 % {high:.1f}, raised after recovery {late}, others {others}")


def _intermittent(seeds: range) -> None:
    for (name, (slow, cycle)), factor in itertools.product(CYCLES.items(), (3.0, 6.0)):
        raised = []
        for size, noise, seed in itertools.product(SIZES[:2], NOISES[::2], seeds):
            level = np.ones((BEFORE + 96) * SHIFT)
            during = np.arange(level.size) >= BEFORE * SHIFT
            level[during & (np.arange(level.size) % cycle < slow)] = factor
            happened = events(level, size, noise, 1000 * seed + size, level.size)
            raised.append(sum(e.kind == "raised" for e in happened))
        print(f"{name}, {factor:.0f} times: alarms raised in 12 hours, by run {raised}", flush=True)


if __name__ == "__main__":
    main()
