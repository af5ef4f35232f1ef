"""A group that falls into two sides along an attribute that members share: a slow server of two.

Neither side is a majority of peers, so no member can be blamed. What can be told is that all members of one
server take longer than the others; docs/alarms.md has the rule's rate of false alarms.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from laggard_aggregator.detect.escalation import MIN_ANOMALOUS_SHARE
from laggard_aggregator.detect.interface import (
    MIN_PEERS,
    BoolArray,
    FloatArray,
    GroupWindow,
    Level,
    Verdicts,
)
from laggard_aggregator.detect.laggard.evidence import HARMLESS_LOG_RATIO
from laggard_aggregator.detect.peers import row_median

MIN_SIDE = 2
MIN_FACTOR = 1.3
MIN_ORDERED_SHARE = 0.95
"""Share of the pairs of a slower and a faster member that are in that order: nearly no overlap."""
MAX_CHANCE = 0.03
"""Chance of such ranks among members that are alike, times the sides tried. Four against four can pass."""
MIN_GAP_DEVIATIONS = 3.0
"""Distance of the sides' medians in standard deviations within the sides: each is alike within itself."""
MAX_FAR_SHARE = 0.25
"""Share of a side that may be far from the rest of it."""
OUTSTANDING_RATIO = 1.5
"""Ratio to its side's median from which a member is slow by itself, not as part of the side."""

MAX_SIDES = 8
REMEMBERED, MIN_REMEMBERED = 12, 4
"""Latest windows without a split that are kept, and the fewest that show the usual level."""
MIN_TICKS = 4
"""Fewest ticks of a window from which the onset of a split can be read."""
CHANGED_SHARE, SAME_SHARE = 0.7, 0.3
"""Shares of the log factor by which the changed side differs from before at least, and the other at most."""


@dataclass(frozen=True, slots=True)
class Split:
    """The slower side: the members whose `attribute` is `value`.

    `other`: the value of all others, "" if several. `members`, `others`: sizes. `median`, `other_median`:
    medians of the sides in the metric's unit. `factor`: how many times slower, above 1.
    `changed`: the value whose side is not as it was before the split, "" where that is not known.
    `changed_at`: when the sides came apart, epoch seconds.
    """

    attribute: str
    value: str
    other: str
    members: int
    others: int
    median: float
    other_median: float
    factor: float
    changed: str = ""
    changed_at: float = 0.0

    def text(self) -> str:
        """One sentence about the window."""
        rest = f"those of {self.other}" if self.other else f"the {self.others} others"
        if self.changed:
            at = datetime.fromtimestamp(self.changed_at, UTC)
            cause = f"{self.changed} changed at {at:%Y-%m-%d %H:%M} UTC"
        else:
            cause = "peers alone cannot tell which side is normal"
        return (
            f"all {self.members} members of {self.attribute} {self.value} are {self.factor:.1f} times slower "
            f"than {rest}; {cause}"
        )


class SideHistory:
    """Typical values of a group's sides before it split, which tell the side that changed since.

    Only of attributes with at most MAX_SIDES values: with more there is a majority.
    """

    def __init__(self) -> None:
        self._usual: dict[str, list[float]] = {}  # log medians by attribute/value
        self._since: float | None = None

    def observe(
        self,
        split: Split | None,
        verdicts: Verdicts,
        levels: Sequence[Level],
        begin: Callable[[Split], float],
    ) -> Split | None:
        """`split` with the side that changed; without a split, a group that was judged is remembered.

        `begin`: when the sides came apart as this window tells it, epoch seconds; asked of the first alone.
        """
        if split is not None:
            self._since = begin(split) if self._since is None else self._since
            slow, fast = (
                np.log(now) - np.median(usual) if len(usual) >= MIN_REMEMBERED else np.nan
                for now, value in ((split.median, split.value), (split.other_median, split.other))
                for usual in (self._usual.get(f"{split.attribute}/{value}", []),)
            )
            full = abs(float(np.log(split.median / split.other_median)))
            changed = ""
            if abs(slow) >= CHANGED_SHARE * full and abs(fast) <= SAME_SHARE * full:
                changed = split.value
            elif abs(fast) >= CHANGED_SHARE * full and abs(slow) <= SAME_SHARE * full:
                changed = split.other
            return replace(split, changed=changed, changed_at=self._since)
        if verdicts.note:
            return None
        self._since = None
        known = verdicts.judged & (verdicts.observed > 0)
        few = [level for level in levels if len(level.parents) <= MAX_SIDES]
        present = {f"{level.name}/{value}" for level in few for value in level.parents}
        self._usual = {side: usual for side, usual in self._usual.items() if side in present}
        for level in few:
            for at, value in enumerate(level.parents):
                mine = known & (level.of == at)
                if mine.sum() >= MIN_SIDE:
                    usual = self._usual.setdefault(f"{level.name}/{value}", [])
                    usual.append(float(np.log(np.median(verdicts.observed[mine]))))
                    del usual[:-REMEMBERED]
        return None

    def state(self) -> dict[str, Any]:
        """The state as plain data, empty without any."""
        usual = {side: list(values) for side, values in self._usual.items()}
        return {"usual": usual, "since": self._since} if usual else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores `state()`."""
        self._usual = {str(side): [float(value) for value in usual] for side, usual in state["usual"].items()}
        self._since = None if state["since"] is None else float(state["since"])


def find_class(verdicts: Verdicts, attributes: Sequence[Level], worse: int = 1) -> Split | None:
    """As `find_split` for a group with a healthy majority: a model, a pool that is slow as a whole.

    Its members are the anomalous ones, most of them at least and no others.
    """
    flagged = verdicts.judged & verdicts.anomalous
    if flagged.sum() < MIN_SIDE:
        return None
    parted = []
    for level in attributes:
        inside = np.bincount(level.of[flagged & (level.of >= 0)], minlength=len(level.parents))
        if flagged[level.of < 0].any() or np.count_nonzero(inside) != 1:
            continue
        members = verdicts.judged & (level.of == int(inside.argmax()))
        if inside.max() >= MIN_ANOMALOUS_SHARE * members.sum():
            parted.append(level)
    split = find_split(verdicts, parted, worse)
    if split is None:
        return None
    level = next(level for level in parted if level.name == split.attribute)
    return split if flagged[level.of == level.parents.index(split.value)].any() else None


def component_of(value: str) -> str:
    """Name of a side among components; a space keeps it apart from the parent of that name."""
    return f"all of {value}"


def find_split(verdicts: Verdicts, levels: Sequence[Level], worse: int = 1) -> Split | None:
    """The attribute value whose members are slower than all others; None where no attribute parts them.

    `verdicts` and `levels` have the same C components. `worse`: as in GroupWindow; 0 gives None. Members
    without a value of the attribute or without a positive `observed` are left out. Of several attributes the
    one with the least chance is taken, then that with the clearest gap, then the narrowest. Members are held
    against each other by the ratios to their references, which know their loads, where all have one.
    """
    if worse == 0:
        return None
    known = verdicts.judged & (verdicts.observed > 0)
    logs = _log_ratios(verdicts, known, worse)
    side = _clearest(logs, known, levels, MIN_SIDE, float(np.log(MIN_FACTOR)))
    if side is None:
        return None
    level, median, other = (
        side.level,
        *(float(np.median(verdicts.observed[part])) for part in (side.slow, side.fast)),
    )
    others = np.unique(level.of[side.fast])
    return Split(
        attribute=level.name,
        value=level.parents[side.parent],
        other=level.parents[others[0]] if others.size == 1 else "",
        members=int(side.slow.sum()),
        others=int(side.fast.sum()),
        median=median,
        other_median=other,
        factor=float(np.exp(side.gap(logs))),
    )


def ahead_of_other_side(
    logs: FloatArray, sure: FloatArray, known: BoolArray, levels: Sequence[Level]
) -> FloatArray:
    """The log by which each member's side is slower than the others; (C,), 0 where no attribute parts them.

    `logs` (C,): log ratios of the `known` (C,) members to the whole group, larger is slower; `sure` (C,): of
    these, what load may not explain, which shows at least MIN_SIDE members of a side as slow, too. Sides of
    fewer than MIN_PEERS, and attributes with more than MAX_SIDES values, are left to the comparison of single
    members. A group may be parted more than once, as of three generations of a device.
    """
    ahead = np.zeros_like(logs)
    few = [level for level in levels if 1 < len(level.parents) <= MAX_SIDES]
    for _ in range(sum(len(level.parents) for level in few)):
        side = _clearest(logs - ahead, known, few, MIN_PEERS, HARMLESS_LOG_RATIO)
        if side is None:
            break
        gap = side.gap(logs - ahead)
        rest = sure - ahead
        if (rest[side.slow] - np.median(rest[side.fast]) >= gap / 2.0).sum() < MIN_SIDE:
            break
        ahead[side.level.of == side.parent] += gap
    return ahead


@dataclass(frozen=True, slots=True)
class _Side:
    """The members (C,) whose `level` is the `parent`-th, which are `slow`, and the `fast` others."""

    level: Level
    parent: int
    slow: BoolArray
    fast: BoolArray

    def gap(self, logs: FloatArray) -> float:
        return float(np.median(logs[self.slow]) - np.median(logs[self.fast]))


def _clearest(
    logs: FloatArray, known: BoolArray, levels: Sequence[Level], members: int, gap: float
) -> _Side | None:
    """The clearest slower side, of `members` and a `gap` at the least, of the `known` (C,)."""
    best: tuple[float, float] | None = None
    clearest = None
    for level in levels:
        placed = known & (level.of >= 0)
        sizes = np.bincount(level.of[placed], minlength=len(level.parents))
        tried = np.flatnonzero((sizes >= members) & (placed.sum() - sizes >= members))
        for parent in tried.tolist():
            mine = placed & (level.of == parent)
            evidence = _evidence(logs[mine], logs[placed & ~mine], tried.size, gap)
            if evidence is not None and (best is None or evidence < best):
                best, clearest = evidence, _Side(level, parent, mine, placed & ~mine)
    return clearest


def _log_ratios(verdicts: Verdicts, known: BoolArray, worse: int) -> FloatArray:
    if verdicts.parted is not None:
        return verdicts.parted
    is_known = np.isfinite(verdicts.reference) & (verdicts.reference > 0)
    ratio = verdicts.observed / verdicts.reference if is_known[known].all() else verdicts.observed
    logs: FloatArray = worse * np.log(np.where(known, ratio, 1.0))
    return logs


def begin_of(split: Split, window: GroupWindow, metric: str, levels: Sequence[Level]) -> float:
    """When the sides of `split` came apart, epoch seconds; the window's start where they already were.

    Two levels of the log ratio of the sides' medians, tick by tick, fitted by least squares.
    """
    level = next(level for level in levels if level.name == split.attribute)
    slow, values = level.of == level.parents.index(split.value), window.metrics[metric]
    logs = np.log(np.where(values > 0.0, values, np.nan))
    sides = [row_median(logs[side].T) for side in (slow, (level.of >= 0) & ~slow)]
    apart = np.abs(sides[0] - sides[1])
    ticks = np.flatnonzero(np.isfinite(apart))
    if ticks.size < MIN_TICKS:
        return window.start
    before, size = np.arange(1, ticks.size), ticks.size
    sums = np.cumsum(apart[ticks])
    rise = (sums[-1] - sums[:-1]) / (size - before) - sums[:-1] / before
    step = int(np.argmax(rise * np.sqrt(before * (size - before))))
    if rise[step] < np.log(split.factor) / 2.0:
        return window.start
    seconds = (window.end - window.start) / (values.shape[1] - window.history)
    return float(window.end - (values.shape[1] - int(ticks[step + 1])) * seconds)


def ordinary_members(verdicts: Verdicts, split: Split, levels: Sequence[Level]) -> BoolArray:
    """(C,): True for members that are like their own side, and so are not to be blamed themselves."""
    level = next(level for level in levels if level.name == split.attribute)
    mine = level.of == level.parents.index(split.value)
    ratio = verdicts.observed / np.where(mine, split.median, split.other_median)
    return np.maximum(ratio, 1.0 / ratio) <= OUTSTANDING_RATIO


def verdict_on(split: Split | None) -> Verdicts:
    """The verdict on a side, one entry; a judged normal one without a split."""
    observed, reference, severity = (
        (np.nan, np.nan, np.nan)
        if split is None
        else (split.median, split.median / split.factor, split.factor)
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


def _evidence(slow: FloatArray, fast: FloatArray, tried: int, least: float) -> tuple[float, float] | None:
    """Chance and negative gap of two sides of log values, the least is best; None if they do not differ.

    `least`: gap. Where all members do not show it, those do that are not far from their own side: one that is
    ill itself hides no sides.
    """
    gap = float(np.median(slow) - np.median(fast))
    if gap < least:
        return None
    evidence = _difference(slow, fast, tried)
    if evidence is None:
        near = [side[np.abs(side - np.median(side)) <= gap / 2.0] for side in (slow, fast)]
        far = [side.size - own.size for side, own in zip((slow, fast), near, strict=True)]
        if any(far) and max(far[0] / slow.size, far[1] / fast.size) <= MAX_FAR_SHARE:
            evidence = _difference(near[0], near[1], tried)
    return evidence


def _difference(slow: FloatArray, fast: FloatArray, tried: int) -> tuple[float, float] | None:
    squares = np.square(slow - slow.mean()).sum() + np.square(fast - fast.mean()).sum()
    deviation = max(float(np.sqrt(squares / max(slow.size + fast.size - 2, 1))), 1e-9)
    gap = float(np.median(slow) - np.median(fast)) / deviation
    if gap < MIN_GAP_DEVIATIONS:
        return None
    from scipy.stats import mannwhitneyu  # noqa: PLC0415 - takes half a second and 40 MB

    ranks = mannwhitneyu(slow, fast, alternative="greater")
    chance = float(ranks.pvalue) * tried
    if ranks.statistic < MIN_ORDERED_SHARE * slow.size * fast.size or chance > MAX_CHANCE:
        return None
    return chance, -gap
