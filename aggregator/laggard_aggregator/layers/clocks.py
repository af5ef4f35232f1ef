"""Offsets between the clocks of two layers, estimated from requests that must nest, or refused."""

from dataclasses import dataclass

import numpy as np

from laggard_aggregator.layers.columns import ABSENT, READ, Ints, RequestColumns

MIN_PAIRS = 8
_NESTED_SHARE = 0.5
_VIOLATED_SHARE = 0.05
_FITTING_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class LayerOffset:
    """Nanoseconds to add to the lower layer's times, give or take `uncertainty_ns`.

    `refused`: reason, or empty. `compared`: enough requests could be compared.
    """

    offset_ns: int = 0
    uncertainty_ns: int = 0
    refused: str = ""
    remark: str = ""
    compared: bool = True

    @property
    def says_more_than_nothing(self) -> bool:
        """The clocks differ, or their relation is doubtful."""
        return bool(self.offset_ns or self.refused or self.remark)


def estimate(upper: RequestColumns, lower: RequestColumns, slack_ns: int) -> LayerOffset:
    """The offset of the lower layer's clock, from requests that both layers have exactly once.

    A lower request lies within the upper one: each pair bounds the offset from both sides. Clocks that agree
    already, or whose order of events is possible as it is (write-back), are left alone. When no single offset
    fits and the order of events is impossible, the offset is refused.
    """
    at_u, at_l = _unique_pairs(upper, lower)
    if len(at_u) < MIN_PAIRS:
        return LayerOffset(compared=False)
    begin_u, end_u, begin_l, end_l = (
        upper.begin_ns[at_u],
        upper.end[at_u],
        lower.begin_ns[at_l],
        lower.end[at_l],
    )
    nested = (begin_l >= begin_u - slack_ns) & (end_l <= end_u + slack_ns)
    if nested.mean() >= _NESTED_SHARE:
        return LayerOffset()
    reads = upper.operation[at_u] == READ
    possible = np.where(reads, begin_l <= end_u + slack_ns, begin_l >= begin_u - slack_ns)
    least = float(np.quantile(begin_u - begin_l, 0.99))
    most = float(np.quantile(end_u - end_l, 0.01))
    middle = round((least + most) / 2)
    fitting = (begin_l + middle >= begin_u - slack_ns) & (end_l + middle <= end_u + slack_ns)
    constant = least <= most + slack_ns and fitting.mean() >= _FITTING_SHARE
    if constant and not (possible.all() and not reads.any()):
        return LayerOffset(middle, max(1, round((most - least) / 2)))
    if 1 - possible.mean() > _VIOLATED_SHARE:
        return LayerOffset(
            refused=f"{1 - possible.mean():.0%} of the requests below lie where none can, and no "
            "single offset of the clocks explains it"
        )
    if constant:
        return LayerOffset(
            remark=f"every write reaches it {-middle / 1e9:.3f} s later: write-back, or a clock "
            "that is ahead by that"
        )
    return LayerOffset()


def _unique_pairs(upper: RequestColumns, lower: RequestColumns) -> tuple[Ints, Ints]:
    """Indexes of finished requests whose operation, range and space occur once in each layer."""
    names = ["operation", "start", "size"]
    spaced = (upper.space >= 0).any() and (lower.space >= 0).any()
    if spaced:
        names.append("space")
    chosen_u, chosen_l = (
        np.flatnonzero((c.start >= 0) & (c.size > 0) & (c.end != ABSENT) & (c.begin_ns != ABSENT))
        for c in (upper, lower)
    )
    a, b = len(chosen_u), len(chosen_l)
    if not a or not b:
        return chosen_u[:0], chosen_l[:0]
    stacked = [
        np.concatenate([getattr(upper, n)[chosen_u], getattr(lower, n)[chosen_l]]).astype(np.int64)
        for n in names
    ]
    order = np.lexsort(stacked)
    differs = np.zeros(a + b - 1, np.bool_)
    for values in stacked:
        differs |= values[order][1:] != values[order][:-1]
    first = np.append(True, differs)
    group = np.cumsum(first) - 1
    sizes = np.bincount(group)
    from_upper = (
        np.bincount(group[order < a], minlength=len(sizes)) if (order < a).any() else np.zeros_like(sizes)
    )
    good = (sizes == 2) & (from_upper == 1)
    members = order[good[group]]
    return chosen_u[members[members < a]], _in_order(members, a, chosen_l)


def _in_order(members: Ints, a: int, chosen_l: Ints) -> Ints:
    """Lower members in the order of their upper partners: `members` has the two of a group side by side."""
    return chosen_l[members[members >= a] - a]
