"""Escalation from slow children to the parent at fault: a server, controller or couplet that slows them all.

Such a fault would otherwise be reported as many. The parent is blamed instead when nearly all of its
children that can be judged are anomalous while most of its own peers are not.
"""

from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, FloatArray, IntArray, Level, Verdicts

MIN_ANOMALOUS_SHARE = 2 / 3
"""Share of the judged children that must be anomalous: an idle or lucky child does not save its parent."""
MIN_CHILDREN = 2
MIN_PARENTS = 3
"""Fewer parents have no majority that could be healthy."""
OUTSTANDING_SEVERITY_RATIO = 1.5
"""Severity ratio to its blamed parent's other children from which a child stays blamed itself."""


def escalate(
    verdicts: Verdicts, levels: Sequence[Level], suspects: MutableMapping[str, str]
) -> tuple[Verdicts, dict[str, str]]:
    """The verdicts without the children that parents explain, the parents' own appended; and those parents.

    `levels` go from narrow to wide (node, controller, couplet). A wider parent is blamed in place of
    narrower ones only when it explains more than one of them, so a couplet with one bad server leaves the
    server blamed. `suspects`, parents and their levels, gains who is blamed now; the parents that are
    appended, in the order of the returned mapping, are all suspects that still are parents here, so that
    their persistence decays when they recover.
    """
    flagged = verdicts.judged & verdicts.anomalous
    blamed = [_blamed(verdicts.judged, flagged, level) for level in levels]
    for wide in range(len(levels)):
        for narrow in range(wide):
            _settle(levels[narrow], blamed[narrow], levels[wide], blamed[wide], flagged)
    explained = np.zeros_like(flagged)
    parents: dict[str, str] = {}
    parent_verdicts = []
    for level, guilty in zip(levels, blamed, strict=True):
        suspects.update((level.parents[at], level.name) for at in np.flatnonzero(guilty))
        for at, parent in enumerate(level.parents):
            if suspects.get(parent) == level.name:
                parents[parent] = level.name
                parent_verdicts.append(_parent(verdicts, flagged, level.of == at, bool(guilty[at])))
        for row in np.flatnonzero(guilty):
            children = flagged & (level.of == row)
            middle = _median(verdicts.severity[children])
            explained |= children & ~(verdicts.severity > OUTSTANDING_SEVERITY_RATIO * middle)
    return joined(replace(verdicts, anomalous=flagged & ~explained), parent_verdicts), parents


def blames_parent(verdicts: Verdicts, levels: Sequence[Level]) -> bool:
    """Whether `escalate` blames a parent in place of its children."""
    flagged = verdicts.judged & verdicts.anomalous
    return any(bool(_blamed(verdicts.judged, flagged, level).any()) for level in levels)


def pairs(levels: Sequence[Level]) -> tuple[Level, ...]:
    """The levels with two parents: `escalate` can blame neither."""
    return tuple(level for level in levels if len(level.parents) == 2)


def _blamed(judged: BoolArray, flagged: BoolArray, level: Level) -> BoolArray:
    """For each parent whether its children are anomalous together while most parents' are not."""
    children = _count(level, judged)
    guilty = (children >= MIN_CHILDREN) & (_count(level, flagged) >= MIN_ANOMALOUS_SHARE * children)
    comparable = int((children >= MIN_CHILDREN).sum())
    if comparable < MIN_PARENTS or guilty.sum() > (comparable - 1) // 2:
        guilty[:] = False
    return guilty


def _settle(
    narrow: Level, narrow_guilty: BoolArray, wide: Level, wide_guilty: BoolArray, flagged: BoolArray
) -> None:
    """Leaves one of a wide parent and the narrow ones below it blamed, in place."""
    for parent in np.flatnonzero(wide_guilty):
        below = flagged & (wide.of == parent)
        causes = np.unique(narrow.of[below])
        named = causes[causes >= 0]
        if causes.size == 1 and named.size == 1 and narrow_guilty[named[0]]:
            wide_guilty[parent] = False
        else:
            narrow_guilty[named] = False


def joined(verdicts: Verdicts, parents: Sequence[Verdicts]) -> Verdicts:
    """`verdicts` with one entry more for each of `parents`."""
    if not parents:
        return verdicts
    names = ("judged", "anomalous", "score", "severity", "observed", "reference")
    whole = (verdicts, *parents)
    joined: dict[str, Any] = {name: np.concatenate([getattr(v, name) for v in whole]) for name in names}
    if verdicts.clear is not None:
        clear = [np.zeros_like(v.judged) if v.clear is None else v.clear for v in whole]
        joined["clear"] = np.concatenate(clear)
    return replace(verdicts, **joined)


def _parent(verdicts: Verdicts, flagged: BoolArray, children: BoolArray, guilty: bool) -> Verdicts:
    """The verdict on one parent: the middle of its anomalous children if it is guilty, else of the judged."""
    chosen = children & (flagged if guilty else verdicts.judged)
    values = (verdicts.score, verdicts.severity, verdicts.observed, verdicts.reference)
    score, severity, observed, reference = (_median(value[chosen]) for value in values)
    judged = int((children & verdicts.judged).sum()) >= MIN_CHILDREN
    clear = None if verdicts.clear is None else _median(verdicts.clear[chosen].astype(np.float64)) > 0.5
    return Verdicts(
        judged=np.array([judged]),
        anomalous=np.array([guilty]),
        score=np.nan_to_num(score),
        severity=severity,
        observed=observed,
        reference=reference,
        clear=clear,
    )


def _count(level: Level, chosen: BoolArray) -> IntArray:
    """How many `chosen` children each parent has."""
    return np.bincount(level.of[chosen & (level.of >= 0)], minlength=len(level.parents))


def _median(values: FloatArray) -> FloatArray:
    """The median of the finite `values`, (1,); NaN without any."""
    known = values[np.isfinite(values)]
    return np.array([np.median(known) if known.size else np.nan])
