"""A shadow detector's verdicts beside those of its group's detector: for comparison, never for alarms."""

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.alarms.judge import Judgement

NOT_COMPARED, NEITHER, DETECTOR, SHADOW, BOTH = range(5)
"""Which of detector and shadow found a component anomalous in a window; compared where both judged it."""


def compare(judged: Judgement) -> tuple[tuple[str, ...], NDArray[np.uint8]]:
    """The names (N,) and states (N,), NOT_COMPARED to BOTH, of a judgement that has a shadow.

    The group's components come first, then the parents that either ever blamed in their place; a parent is
    compared where one of both blames it.
    """
    shadow = judged.shadow
    assert shadow is not None
    peers = judged.levels.count(judged.levels[0]) if judged.levels else 0
    own, other = (judgement.verdicts.judged & judgement.verdicts.anomalous for judgement in (judged, shadow))
    both = judged.verdicts.judged[:peers] & shadow.verdicts.judged[:peers]
    state = np.where(both, NEITHER + own[:peers] + 2 * other[:peers], NOT_COMPARED)
    parents = dict.fromkeys((*judged.components[peers:], *shadow.components[peers:]), 0)
    for judgement, flags, amount in ((judged, own, 1), (shadow, other, 2)):
        for at in np.flatnonzero(flags[peers:]) + peers:
            parents[judgement.components[at]] += amount
    of_parents = [NEITHER + marks if marks else NOT_COMPARED for marks in parents.values()]
    whole = np.concatenate([state, np.array(of_parents, dtype=np.int64)])
    return (*judged.components[:peers], *parents), whole.astype(np.uint8)


def count(judged: Judgement) -> list[int]:
    """The number of components by state, in a judgement that has a shadow."""
    _, state = compare(judged)
    counted: list[int] = np.bincount(state, minlength=BOTH + 1).tolist()
    return counted


def stragglers(judged: Judgement) -> tuple[set[str], set[str]]:
    """The stragglers of the detector, and of its shadow, in a judgement that has one."""
    shadow = judged.shadow
    assert shadow is not None
    own, other = ({v.components[at] for at in np.flatnonzero(v.straggler)} for v in (judged, shadow))
    return own, other
