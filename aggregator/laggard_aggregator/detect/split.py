"""A group that falls into two sides along an attribute that members share: a slow server of two.

Neither side is a majority of peers, so no member can be blamed. What can be told is that all members of one
server take longer than the others; docs/alarms.md has the rule's rate of false alarms.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import mannwhitneyu

from laggard_aggregator.detect.escalation import Level
from laggard_aggregator.detect.interface import BoolArray, FloatArray, Verdicts

MIN_SIDE = 2
MIN_FACTOR = 1.3
MIN_ORDERED_SHARE = 0.95
"""Share of the pairs of a slower and a faster member that are in that order: nearly no overlap."""
MAX_CHANCE = 0.03
"""Chance of such ranks among members that are alike, times the sides tried. Four against four can pass."""
MIN_GAP_DEVIATIONS = 3.0
"""Distance of the sides' medians in standard deviations within the sides: each is alike within itself."""
OUTSTANDING_RATIO = 1.5
"""Ratio to its own side's median from which a member is no mere part of the side."""


@dataclass(frozen=True, slots=True)
class Split:
    """The slower side: the members whose `attribute` is `value`.

    `other`: the value of all others, "" if several. `members`, `others`: sizes. `median`, `other_median`:
    medians of the sides in the metric's unit. `factor`: how many times slower, above 1.
    """

    attribute: str
    value: str
    other: str
    members: int
    others: int
    median: float
    other_median: float
    factor: float

    def text(self) -> str:
        """One sentence about the window."""
        rest = f"those of {self.other}" if self.other else f"the {self.others} others"
        return (
            f"all {self.members} members of {self.attribute} {self.value} are {self.factor:.1f} times slower "
            f"than {rest}; which is normal cannot be told"
        )


def component_of(value: str) -> str:
    """Name of a side among components; a space keeps it apart from the parent of that name."""
    return f"all of {value}"


def find_split(verdicts: Verdicts, levels: Sequence[Level], worse: int = 1) -> Split | None:
    """The attribute value whose members are slower than all others; None where no attribute parts them.

    `verdicts` and `levels` have the same C components. `worse`: as in GroupWindow; 0 gives None. Members
    without a value of the attribute or without a positive `observed` are left out. Of several attributes the
    one with the least chance is taken, then that with the clearest gap, then the narrowest.
    """
    if worse == 0:
        return None
    known = verdicts.judged & (verdicts.observed > 0)
    logs = worse * np.log(np.where(known, verdicts.observed, 1.0))
    best: tuple[float, float] | None = None
    split = None
    for level in levels:
        placed = known & (level.of >= 0)
        sizes = np.bincount(level.of[placed], minlength=len(level.parents))
        tried = np.flatnonzero((sizes >= MIN_SIDE) & (placed.sum() - sizes >= MIN_SIDE))
        for parent in tried.tolist():
            mine = placed & (level.of == parent)
            evidence = _evidence(logs[mine], logs[placed & ~mine], tried.size)
            if evidence is None or (best is not None and evidence >= best):
                continue
            best = evidence
            others = np.unique(level.of[placed & ~mine])
            median, other = (float(np.median(verdicts.observed[side])) for side in (mine, placed & ~mine))
            split = Split(
                attribute=level.name,
                value=level.parents[parent],
                other=level.parents[others[0]] if others.size == 1 else "",
                members=int(mine.sum()),
                others=int((placed & ~mine).sum()),
                median=median,
                other_median=other,
                factor=median / other if worse > 0 else other / median,
            )
    return split


def ordinary_members(verdicts: Verdicts, split: Split, levels: Sequence[Level]) -> BoolArray:
    """(C,): True for members that are like their own side, and so are not to be blamed themselves."""
    level = next(level for level in levels if level.name == split.attribute)
    mine = level.of == level.parents.index(split.value)
    ratio = verdicts.observed / np.where(mine, split.median, split.other_median)
    return np.maximum(ratio, 1.0 / ratio) <= OUTSTANDING_RATIO


def verdict_on(split: Split | None) -> Verdicts:
    """The verdict on a side, one entry; a judged normal one without a split."""
    observed, reference, severity = (
        (np.nan, np.nan, np.nan) if split is None else (split.median, split.other_median, split.factor)
    )
    score = 0.0 if split is None else float(np.log(split.factor) / np.log(MIN_FACTOR))
    return Verdicts(
        judged=np.array([True]),
        anomalous=np.array([split is not None]),
        score=np.array([score]),
        severity=np.array([severity]),
        observed=np.array([observed]),
        reference=np.array([reference]),
    )


def _evidence(slow: FloatArray, fast: FloatArray, tried: int) -> tuple[float, float] | None:
    """Chance and negative gap of two sides of log values, the least is best; None if they do not differ."""
    gap = float(np.median(slow) - np.median(fast))
    if gap < np.log(MIN_FACTOR):
        return None
    squares = np.square(slow - slow.mean()).sum() + np.square(fast - fast.mean()).sum()
    deviations = gap / max(float(np.sqrt(squares / max(slow.size + fast.size - 2, 1))), 1e-9)
    if deviations < MIN_GAP_DEVIATIONS:
        return None
    ranks = mannwhitneyu(slow, fast, alternative="greater")
    chance = float(ranks.pvalue) * tried
    if ranks.statistic < MIN_ORDERED_SHARE * slow.size * fast.size or chance > MAX_CHANCE:
        return None
    return chance, -deviations
