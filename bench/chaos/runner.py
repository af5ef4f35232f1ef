"""Tries of many faults on several sites side by side."""

import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from bench.chaos.account import Account, account
from bench.chaos.attempts import Attempt, attempt
from bench.chaos.faults import Fault
from bench.chaos.feed import Feed
from bench.chaos.site import Site

_MOST_OF_A_SITE = 40
"""Tries, before a new site takes its place."""


def run_all(jobs: Sequence[Callable[[], None]], stop: Callable[[], None]) -> None:
    """Does all `jobs` at once; told to end, it calls `stop`, and waits on: what they made must be undone."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        running = [pool.submit(job) for job in jobs]
        try:
            wait(running)
        except KeyboardInterrupt:
            print("ending after what is under way", file=sys.stderr, flush=True)
            stop()
        for done in running:
            done.result()


@dataclass(frozen=True, slots=True)
class Result:
    """A try with its account: samples that came, were lost, are there twice."""

    attempt: Attempt
    came: int
    lost: int
    twice: int

    @property
    def failed(self) -> bool:
        """Whether it is a failure."""
        return bool(self.attempt.problem or self.lost or self.twice)


class Runner:
    """Tries faults on sites in `folder`. `problems`: what is wrong with a site and belongs to no try.

    `missed`: samples that agents did not take, as they say. `earlier`: as for a Site.
    """

    def __init__(self, folder: Path, feed: Feed, seed: int, earlier: Path | None = None) -> None:
        self.results: list[Result] = []
        self.problems: list[str] = []
        self.missed = 0
        self._folder = folder
        self._feed = feed
        self._earlier = earlier
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self._waiting: list[tuple[Fault, int]] = []
        self._in_all = self._done = 0
        self._sites = 0
        self._running: Counter[str] = Counter()  # sites, by the kind of their broker

    def run(self, faults: Sequence[Fault], tries: int, sites: int) -> None:
        """Tries each of `faults` so often, on so many sites at once, in an order of chance."""
        self._waiting = [(fault, number) for fault in faults for number in range(tries)]
        self._rng.shuffle(self._waiting)
        self._in_all = len(self._waiting)
        run_all([self._work] * min(sites, len(self._waiting)), self._waiting.clear)

    def _work(self) -> None:
        """One site after another until nothing waits."""
        while (site := self._next_site()) is not None:
            attempts: list[Attempt] = []
            try:
                with site.running():
                    self._try_all(site, attempts)
                made = account(site)
            except Exception as exc:  # the rest goes on, on another site
                with self._lock:
                    self.problems.append(f"{site.folder}: {type(exc).__name__}: {exc}")
                made = Account()
            with self._lock:
                self._running[site.kind] -= 1
                self.results += results(attempts, made)
                self.missed += made.missed
                self.problems += [f"{site.folder}: {problem}" for problem in made.problems]

    def _try_all(self, site: Site, attempts: list[Attempt]) -> None:
        """Tries what waits until nothing does, or something goes wrong."""
        for fault, number, rng in self._wanted(site.kind):
            tried = attempt(site, fault, number, rng)
            attempts.append(tried)
            with self._lock:
                self._done += 1
                done = f"{self._done} of {self._in_all}, load {os.getloadavg()[0]:.0f}"
            print(f"{done}, {site.folder.name}: {tried.line()}", file=sys.stderr, flush=True)
            if tried.problem:
                return

    def _wanted(self, kind: str) -> Iterator[tuple[Fault, int, random.Random]]:
        for _ in range(_MOST_OF_A_SITE):
            with self._lock:
                found = next((one for one in self._waiting if one[0].broker == kind), None)
                if found is None:
                    return
                self._waiting.remove(found)
                rng = random.Random(self._rng.getrandbits(64))
            yield *found, rng

    def _next_site(self) -> Site | None:
        """A site for tries that no site is there for; else one more where most tries wait for each."""
        with self._lock:
            waiting = Counter(fault.broker for fault, _ in self._waiting)
            if not waiting:
                return None
            kind = max(waiting, key=lambda each: waiting[each] / (self._running[each] or 0.01))
            self._sites += 1
            self._running[kind] += 1
            return Site(self._folder / f"site-{self._sites}", self._feed, kind, self._earlier)


def results(attempts: Sequence[Attempt], made: Account) -> list[Result]:
    """Each try with what came, or should have, from its beginning to the next one's."""
    ends = [*(one.begin_ns for one in attempts), 2**63][1:]
    return [
        Result(one, *(made.between(what, one.begin_ns, end) for what in ("came", "lost", "twice")))
        for one, end in zip(attempts, ends, strict=True)
    ]
