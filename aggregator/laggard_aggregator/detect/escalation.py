"""From slow children to the parent at fault: a server, a controller or a couplet that slows all it carries.

Such a fault would otherwise be reported as many. The parent is indicted instead when nearly all of its
children that can be judged are anomalous while most of its own peers are not (DESIGN.md, "Detecting").
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from laggard_aggregator.detect.seam import BoolArray, FloatArray, IntArray, Verdicts

ALL_BUT_FEW = 2 / 3
"""Share of the judged children that must be anomalous: an idle or lucky child does not save its parent."""
MIN_CHILDREN = 2
MIN_PARENTS = 3
"""Fewer parents have no majority that could be healthy."""
STANDS_OUT = 1.5
"""A child so many times slower than its indicted parent's other children stays indicted itself."""


@dataclass(frozen=True, slots=True)
class Level:
    """One kind of parent. `of` (C,): for each component the place of its parent in `parents`, -1 for none."""

    name: str
    parents: tuple[str, ...]
    of: IntArray


def escalate(verdicts: Verdicts, levels: Sequence[Level]) -> tuple[Verdicts, tuple[Verdicts, ...]]:
    """The verdicts with what parents explain taken out, and each level's verdicts on its parents.

    `levels` go from narrow to wide (node, controller, couplet). A wider parent is indicted in place of
    narrower ones only when it explains more than one of them, so a couplet with one bad server leaves the
    server indicted.
    """
    flagged = verdicts.judged & verdicts.anomalous
    indicted = [_indicted(verdicts.judged, flagged, level) for level in levels]
    for wide in range(len(levels)):
        for narrow in range(wide):
            _settle(levels[narrow], indicted[narrow], levels[wide], indicted[wide], flagged)
    explained = np.zeros_like(flagged)
    found = []
    for level, guilty in zip(levels, indicted, strict=True):
        of_parents = _parents(verdicts, flagged, level, guilty)
        child = _child_of(level, guilty) & flagged
        stands_out = verdicts.severity[child] > STANDS_OUT * of_parents.severity[level.of[child]]
        explained[np.flatnonzero(child)[~stands_out]] = True
        found.append(of_parents)
    return replace(verdicts, anomalous=flagged & ~explained), tuple(found)


def _indicted(judged: BoolArray, flagged: BoolArray, level: Level) -> BoolArray:
    """For each parent whether its children are anomalous together while most parents' are not."""
    children = _count(level, judged)
    guilty = (children >= MIN_CHILDREN) & (_count(level, flagged) >= ALL_BUT_FEW * children)
    comparable = int((children >= MIN_CHILDREN).sum())
    if comparable < MIN_PARENTS or guilty.sum() > (comparable - 1) // 2:
        guilty[:] = False
    return guilty


def _settle(
    narrow: Level, narrow_guilty: BoolArray, wide: Level, wide_guilty: BoolArray, flagged: BoolArray
) -> None:
    """Leaves one of a wide parent and the narrow ones below it indicted, in place."""
    for parent in np.flatnonzero(wide_guilty):
        below = flagged & (wide.of == parent)
        causes = np.unique(narrow.of[below])
        named = causes[causes >= 0]
        if causes.size == 1 and named.size == 1 and narrow_guilty[named[0]]:
            wide_guilty[parent] = False
        else:
            narrow_guilty[named] = False


def _parents(verdicts: Verdicts, flagged: BoolArray, level: Level, guilty: BoolArray) -> Verdicts:
    """Verdicts on the parents of one level; a guilty one has the middle of its anomalous children."""
    n = len(level.parents)
    judged = _count(level, verdicts.judged) >= MIN_CHILDREN
    score, severity = np.zeros(n), np.full(n, np.nan)
    observed, reference = np.full(n, np.nan), np.full(n, np.nan)
    for parent in np.flatnonzero(guilty):
        children = flagged & (level.of == parent)
        score[parent] = np.median(verdicts.score[children])
        severity[parent] = _median(verdicts.severity[children])
        observed[parent] = _median(verdicts.observed[children])
        reference[parent] = _median(verdicts.reference[children])
    return Verdicts(judged, guilty, score, severity, observed, reference)


def _child_of(level: Level, guilty: BoolArray) -> BoolArray:
    """For each component whether its parent is guilty."""
    child: BoolArray = (level.of >= 0) & np.append(guilty, False)[level.of]
    return child


def _count(level: Level, chosen: BoolArray) -> IntArray:
    """How many `chosen` children each parent has."""
    return np.bincount(level.of[chosen & (level.of >= 0)], minlength=len(level.parents))


def _median(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else float("nan")
