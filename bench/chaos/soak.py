"""Faults of many kinds, one after another, for a long time: what is lost, and whether memory stays as it is.

Two sites, as a process that is ended says nothing of its memory over the time: in one the aggregator lives
from the beginning to the end and all around it fails, in the other the broker and the agents do.
"""

import random
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import linear_regression, median

from bench.chaos.account import account
from bench.chaos.attempts import Attempt, attempt
from bench.chaos.faults import FAULTS, Fault
from bench.chaos.feed import Feed
from bench.chaos.runner import Result, results, run_all
from bench.chaos.site import Site
from laggard_aggregator.demo.site import SHIFT_SAMPLES
from laggard_aggregator.status.window_history import MAX_WINDOWS

MOST_GROWTH = 0.02
LEAST_MIB = 1.0
"""Less is no growth of a small process: interpreters and C libraries ask for so much at a time."""
LEAST_FILES = 2
"""Connections come and go; fewer more at the end are none that stay."""
OURS = ("aggregator", "agents")
"""Whose memory and descriptors are to stay. What the broker keeps of its largest flood is told, only."""
WARM_UP = 1 / 3
"""Part of the time after which memory is to stay as it is; figures are medians of a tenth of the time.

Each kind of fault comes once before any comes again: bounds of queues and caches, which are reached once, are
reached within the warm-up, where it is long enough for that. So is the history of windows, which pages and
mails show: each adds to it until there are MAX_WINDOWS.
"""

_SPAN = 0.1
_SAMPLE_SECONDS = 5.0
_BETWEEN_SECONDS = (1.0, 10.0)


Seen = tuple[float, dict[str, tuple[int, int]]]
"""Minutes, and bytes and descriptors of each by name."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of a process that lived all the time: MiB, and the trend after the warm-up.

    `course`: medians of tenths of the time. `warm_files`, `end_files`: its open descriptors.
    """

    name: str
    warm_mib: float
    end_mib: float
    most_mib: float
    kib_a_minute: float
    course: tuple[float, ...]
    warm_files: float
    end_files: float
    files_an_hour: float

    @property
    def growth(self) -> float:
        """From the warm-up to the end, as a share."""
        return self.end_mib / self.warm_mib - 1

    @property
    def grew(self) -> bool:
        """Whether it is one of OURS, and that is more than it should be."""
        return self.name in OURS and self.growth > MOST_GROWTH and self.end_mib - self.warm_mib > LEAST_MIB

    @property
    def keeps_files(self) -> bool:
        """Whether it has more descriptors at the end than after the warm-up, by more than a connection."""
        return self.name in OURS and self.end_files > self.warm_files + LEAST_FILES


@dataclass(slots=True)
class Soak:
    """`minutes` of faults from `seed`. `run` fills the rest."""

    folder: Path
    feed: Feed
    seed: int
    minutes: float
    results: list[Result] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    missed: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    @property
    def filled_minutes(self) -> float:
        """After how long the aggregator's history of windows is full, where every window has data."""
        return MAX_WINDOWS * SHIFT_SAMPLES * self.feed.tick_seconds / 60

    def run(self) -> None:
        """Both sites, side by side."""
        mine = [fault for fault in FAULTS.values() if fault.broker == "mosquitto"]
        around = [fault for fault in mine if "aggregator" not in fault.ends]
        above = [fault for fault in mine if fault.ends <= {"aggregator"}]
        sites = [
            partial(self._soak, 1, around, ["aggregator"]),
            partial(self._soak, 2, above, ["broker", "agents"]),
        ]
        run_all(sites, self._stop.set)

    def _soak(self, number: int, faults: Sequence[Fault], lasting: Sequence[str]) -> None:
        site = Site(self.folder / f"soak-{number}", self.feed, "mosquitto")
        attempts: list[Attempt] = []
        seen: list[Seen] = []
        try:
            with site.running(), _watched(site, lasting, seen):
                self._break(site, faults, attempts)
            made = account(site)
        except Exception as exc:
            self.problems.append(f"{site.folder}: {type(exc).__name__}: {exc}")
            return
        self.results += results(attempts, made)
        self.missed += made.missed
        self.problems += [f"{site.folder}: {problem}" for problem in made.problems]
        self.memory += [_memory(name, seen) for name in seen[0][1]]

    def _break(self, site: Site, faults: Sequence[Fault], attempts: list[Attempt]) -> None:
        rng = random.Random(f"{self.seed} {site.folder.name}")
        end = time.monotonic() + 60 * self.minutes
        first = rng.sample(faults, len(faults))
        while time.monotonic() < end and not self._stop.is_set():
            fault = first.pop() if first else rng.choice(faults)
            tried = attempt(site, fault, rng.randrange(8), rng)
            attempts.append(tried)
            print(f"{site.folder.name}: {tried.line()}", file=sys.stderr, flush=True)
            time.sleep(rng.uniform(*_BETWEEN_SECONDS))


@contextmanager
def _watched(site: Site, lasting: Sequence[str], seen: list[Seen]) -> Iterator[None]:
    """Notes memory and descriptors of those that last, by name, agents together, while the body runs."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            seen.append((time.monotonic() / 60, {name: _used(site, name) for name in lasting}))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _used(site: Site, name: str) -> tuple[int, int]:
    processes = {
        "aggregator": [site.aggregator],
        "broker": [site.broker] if site.broker else [],
        "agents": list(site.agents.values()),
    }[name]
    return sum(one.resident_bytes() or 0 for one in processes), sum(one.descriptors() for one in processes)


def _memory(name: str, seen: Sequence[Seen]) -> Memory:
    times = [at - seen[0][0] for at, _ in seen]
    mib = [by[name][0] / 2**20 for _, by in seen]
    files = [by[name][1] for _, by in seen]
    first, last = round(len(mib) * WARM_UP), len(mib) - max(round(len(mib) * _SPAN), 1)
    slope, _ = linear_regression(times[first:], mib[first:])
    files_slope, _ = linear_regression(times[first:], files[first:])
    warm = slice(first, first + len(mib) - last)
    tenths = [round(len(mib) * part * _SPAN) for part in range(round(1 / _SPAN) + 1)]
    course = tuple(median(mib[begin:end]) for begin, end in pairwise(tenths) if end > begin)
    return Memory(
        name,
        median(mib[warm]),
        median(mib[last:]),
        max(mib),
        1024 * slope,
        course,
        median(files[warm]),
        median(files[last:]),
        60 * files_slope,
    )
