"""Compares the OSTs, ranks or nodes of one job with each other: time per byte, leave-one-out median."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import MIN_PEERS
from laggard_aggregator.detect.peers import leave_one_out_median, shortest_half

MIN_RATIO: Final = 2.0
"""Times slower than its peers that a member must be."""
MIN_SCORE: Final = 6.0
"""Log ratio in spreads of the group that a member must reach: a job is judged once, not in many windows."""
MIN_SPREAD: Final = 0.05
MIN_WORK: Final = 0.1
"""Share of the median amount below which a member is not compared: calls, not bytes, then take its time."""
MAX_SHARE: Final = 1 / 3
"""If more of the members are slow, they are no exception."""
_HALF_OF_NORMAL: Final = 1.349
"""Length of the shortest half of a normal law, in standard deviations."""

__all__ = ["MAX_SHARE", "MIN_PEERS", "MIN_RATIO", "MIN_SCORE", "MIN_WORK", "PeerRatios", "compared"]


@dataclass(frozen=True, slots=True)
class PeerRatios:
    """Members (C,) against their peers; NaN for a member that is not compared.

    `ratio`: times slower than the median of the others. `score`: its log in spreads of the group. `slow`: the
    members that are stragglers. `speed`: amount by time. `idle`: members with too little I/O to compare.
    `exceeding`: slow members beyond MAX_SHARE; then none is a straggler.
    """

    speed: NDArray[np.float64]
    ratio: NDArray[np.float64]
    score: NDArray[np.float64]
    slow: NDArray[np.bool_]
    idle: int = 0
    exceeding: int = 0

    @property
    def members(self) -> int:
        """Members that are compared."""
        return int(np.isfinite(self.ratio).sum())

    def median_of_others(self, place: int) -> float:
        """Median speed of the members other than `place`."""
        return float(np.nanmedian(np.delete(self.speed, place)))


def compared(times: NDArray[np.float64], amounts: NDArray[np.float64]) -> PeerRatios | None:
    """`times` and `amounts` (C,) of members; None with too few to compare.

    Members with less than MIN_WORK of the median amount are not compared.
    """
    is_active = (times > 0) & (amounts > 0)
    if not is_active.any():
        return None
    has_work = is_active & (amounts >= MIN_WORK * float(np.median(amounts[is_active])))
    if has_work.sum() < MIN_PEERS:
        return None
    idle = int(is_active.sum() - has_work.sum())
    speed = np.divide(amounts, times, out=np.full(times.size, np.nan), where=has_work)
    logs = -np.log(speed)
    reference = leave_one_out_median(logs[:, None], has_work)[:, 0]
    _, length = shortest_half(logs)
    score = (logs - reference) / max(length / _HALF_OF_NORMAL, MIN_SPREAD)
    ratio = np.exp(logs - reference)
    slow = (ratio >= MIN_RATIO) & (score >= MIN_SCORE)
    count = int(slow.sum())
    if count > MAX_SHARE * has_work.sum():
        return PeerRatios(speed, ratio, score, np.zeros_like(slow), idle, exceeding=count)
    return PeerRatios(speed, ratio, score, slow, idle)
