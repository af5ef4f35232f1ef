"""Right and wrong, counted as the papers count them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from bench.accuracy.judging import Findings
from bench.accuracy.simulation.scenario import BoolArray
from bench.accuracy.simulation.shapes import Shape


@dataclass(frozen=True, slots=True)
class Outcome:
    """One experiment, scored as in HotDep's Table 1.

    `found`: every faulty component was blamed (after the fault began; by itself or by its server).
    `wrong`: at least one healthy one was, at any time; `blamed` names which, and by which metric.
    `delay_seconds`: from the fault's start until all were blamed, NaN if never.
    """

    found: bool
    wrong: bool
    delay_seconds: float
    blamed: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    parents: frozenset[str] = frozenset()


def outcome(findings: Sequence[Findings], faulty: BoolArray, shape: Shape, start_seconds: float) -> Outcome:
    """The score of one run; `faulty` (L,)."""
    servers = np.zeros(shape.servers, dtype=np.bool_)
    servers[shape.server_of[faulty]] = True
    first = np.full(shape.luns, np.inf)
    blamed = []
    for source in findings:
        of_luns = source.components == shape.lun_names
        guilty = faulty if of_luns else servers
        for metric, flags in source.stragglers.items():
            blamed += [
                f"{source.components[c]} by {metric}" for c in np.flatnonzero(flags.any(axis=0) & ~guilty)
            ]
            late = flags & (source.ends > start_seconds)[:, None]
            when = np.where(late.any(axis=0), source.ends[late.argmax(axis=0)], np.inf)
            first = np.minimum(first, when if of_luns else when[shape.server_of])
    missed = faulty & np.isinf(first)
    delay = float(first[faulty].max() - start_seconds) if faulty.any() and not missed.any() else np.nan
    return Outcome(
        bool(faulty.any() and not missed.any()),
        bool(blamed),
        delay,
        tuple(blamed),
        tuple(shape.lun_names[c] for c in np.flatnonzero(missed)),
        frozenset().union(*(source.parents for source in findings)),
    )


@dataclass(frozen=True, slots=True)
class Rates:
    """True and false positives of experiments, and the median delay of those found."""

    runs: int
    found: int
    wrong: int
    median_delay_seconds: float

    def __str__(self) -> str:
        if not self.runs:
            return "–"
        delay = "" if np.isnan(self.median_delay_seconds) else f", {self.median_delay_seconds:.0f} s"
        return f"{100 * self.found / self.runs:.0f} / {100 * self.wrong / self.runs:.0f}{delay}"


def rates(outcomes: Iterable[Outcome]) -> Rates:
    """The rates of some experiments."""
    own = list(outcomes)
    delays = [o.delay_seconds for o in own if o.found]
    median = float(np.median(delays)) if delays else np.nan
    return Rates(len(own), sum(o.found for o in own), sum(o.wrong for o in own), median)


def upper_rate(events: int, exposure: float, confidence: float = 0.95) -> float:
    """The one-sided upper bound of a Poisson rate: `events` seen in `exposure` component-days."""
    return float(stats.chi2.ppf(confidence, 2 * (events + 1)) / 2 / exposure)


def upper_share(events: int, trials: int, confidence: float = 0.95) -> float:
    """The one-sided Clopper-Pearson upper bound of a share."""
    return 1.0 if events >= trials else float(stats.beta.ppf(confidence, events + 1, trials - events))


def episodes(flags: BoolArray) -> int:
    """How many times anyone became a straggler: alarms, one an episode; `flags` (W, C)."""
    before = np.vstack([np.zeros((1, flags.shape[1]), dtype=np.bool_), flags[:-1]])
    return int((flags & ~before).sum())
