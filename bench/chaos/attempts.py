"""One try of one fault on a site that is well: what it was before, and how long until it is well again."""

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass

from bench.chaos.faults import Fault
from bench.chaos.ground_truth import Spooled
from bench.chaos.site import Site

WELL_SECONDS = 240.0
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Attempt:
    """A try, begun at `begin_ns`. Seconds are from the fault's end.

    `data_seconds`: until the aggregator had acknowledged everything. `verdict_seconds`: until the slow LUN
    was judged by what came after the fault. NaN when that was not seen. `came_again`: batches refused as
    duplicates since then or since the aggregator's start. `alarm_changed`: it is not the one from before.
    `problem` is empty when all is as it was.
    """

    fault: str
    number: int
    begin_ns: int
    data_seconds: float
    verdict_seconds: float
    came_again: int
    alarm_changed: bool
    problem: str

    def line(self) -> str:
        """The try in one line."""
        return (
            f"{self.fault} {self.number}: data {self.data_seconds:.1f} s, "
            f"verdict {self.verdict_seconds:.1f} s {self.problem}"
        )


def attempt(site: Site, fault: Fault, number: int, rng: random.Random) -> Attempt:
    """Tries `fault` once. Raises TimeoutError when the site is not well before."""
    Site.until("the site to be well", lambda: is_well(site), WELL_SECONDS)
    before, duplicates = site.alarm(), site.figures().get("laggard_duplicates_total", 0.0)
    begin_ns = time.time_ns()
    fault.inject(site, rng, number)
    ended = time.time()
    data, verdict = recovery(site, site.marks(), ended)
    after = site.alarm()
    again = site.figures().get("laggard_duplicates_total", 0.0)
    problems = [f"{name} has ended by itself" for name in site.dead()]
    if data != data or verdict != verdict:
        problems.append(f"not well again: {site.lacking()}")
    if after != before:
        problems.append(f"the alarm was {before} and is {after}")
    return Attempt(
        fault.name,
        number,
        begin_ns,
        data,
        verdict,
        int(again - duplicates if again >= duplicates else again),
        after != before,
        "; ".join(problems),
    )


def is_well(site: Site) -> bool:
    """Whether everything runs, has been acknowledged, and is judged."""
    return not site.dead() and site.alarm() is not None and site.has_all() and site.is_current(0.0)


def recovery(site: Site, marks: Mapping[str, Spooled | None], ended: float) -> tuple[float, float]:
    """Seconds from `ended` until all data is there, and until the verdicts are current; NaN: never."""
    data = verdict = float("nan")
    while time.time() - ended < WELL_SECONDS and (data != data or verdict != verdict):
        if data != data and site.has_all(marks):
            data = time.time() - ended
        if verdict != verdict and site.is_current(ended):
            verdict = time.time() - ended
        time.sleep(_LOOK_SECONDS)
    return data, verdict
