"""A whole group against its own past: what slows all of its members at once leaves no slow one among peers.

A switch, a failing controller cache or an upgrade. The group's typical value of a window is compared with
those of its past windows under at least the same demand, at the same hour of the day where enough are known.
docs/alarms.md has figures.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from laggard_aggregator.detect.interface import FloatArray, GroupWindow, Verdicts
from laggard_aggregator.detect.laggard.load import usable
from laggard_aggregator.detect.peers import new_samples, row_median

HARMLESS_LOG_RATIO = float(np.log(1.5))
"""Log ratio beyond the slow end of the comparable past from which a group is anomalous."""
SLOW_END = 0.95
"""Quantile of the comparable windows that is their slow end."""
MIN_COMPARABLE = 12
"""Fewest comparable windows, 90 minutes of them at the least."""
MIN_PAST_SECONDS = 44 * 3600.0
"""Shortest past: every hour twice, nearly."""
SPACING_SECONDS, MAX_KEPT = 450.0, 1344
"""Kept windows end at least that far apart; at most that number is kept: a week."""
NEW_NORMAL_SECONDS = 7 * 86400.0
"""After this time a new level is normal: the past is dropped."""
LOAD_LOG_RANGE = float(np.log(1.5))
"""Log ratio by which comparable windows may have had less demand, or smaller requests."""
READ_SHARE_RANGE = 0.2
HOURS_RANGE = 2.0
SAMPLED = 256
"""Most members that are read; of a larger group, every n-th one."""

DEMAND = frozenset({"operations", "throughput"})
"""Loads that measure the demand on a group."""
_DAY = 86400.0


class GroupHistory:
    """Judges one metric of a group as a whole, in order of time.

    Scores are shares of the threshold: 1.0 and more is anomalous. Anomalous windows are not kept.
    """

    def __init__(self, metric: str, interval_seconds: float) -> None:
        self._metric = metric
        self._interval = interval_seconds
        self._kept = np.zeros((0, 5))  # end, log value, log demand, log request size, read share
        self._end: float | None = None
        self._slow_from: float | None = None

    def observe(self, window: GroupWindow) -> Verdicts | None:
        """The verdict on the group, one entry; None where nothing is comparable with the window.

        `observed` is the median of the members' medians, `reference` that of the comparable past. Only
        metrics of which larger values are worse are judged, and only where the demand is known.
        """
        if window.worse.get(self._metric, 1) <= 0 or not window.load.keys() & DEMAND:
            return None
        new = new_samples(window, self._metric, self._end, self._interval)
        self._end = window.end if self._end is None else max(self._end, window.end)
        now = _summary(window, self._metric, new)
        if not np.isfinite(now[1:3]).all():
            return None
        if self._slow_from is not None and window.end - self._slow_from >= NEW_NORMAL_SECONDS:
            self._kept, self._slow_from = self._kept[:0], None
        past = self._comparable(now)
        if past.size < MIN_COMPARABLE:
            self._keep(now)
            return None
        usual = float(np.median(past))
        score = float(now[1] - np.quantile(past, SLOW_END)) / HARMLESS_LOG_RATIO
        if score >= 1.0:
            self._slow_from = window.end if self._slow_from is None else self._slow_from
        else:
            self._slow_from = None
            self._keep(now)
        return Verdicts(
            judged=np.array([True]),
            anomalous=np.array([score >= 1.0]),
            score=np.array([score]),
            severity=np.exp(now[1:2] - usual),
            observed=np.exp(now[1:2]),
            reference=np.exp([usual]),
        )

    def _comparable(self, now: FloatArray) -> FloatArray:
        """The log values (n,) of past windows with which `now` may be compared."""
        kept = self._kept
        if not len(kept) or now[0] - kept[0, 0] < MIN_PAST_SECONDS:
            return kept[:0, 1]
        # An unknown part of the load, NaN, excludes nothing.
        less = (kept[:, 2:4] < now[2:4] - LOAD_LOG_RANGE).any(axis=1)
        alike = kept[~less & ~(np.abs(kept[:, 4] - now[4]) > READ_SHARE_RANGE)]
        away = np.abs((alike[:, 0] - now[0] + _DAY / 2.0) % _DAY - _DAY / 2.0)
        at_this_hour = alike[away <= HOURS_RANGE * 3600.0]
        comparable: FloatArray = (at_this_hour if len(at_this_hour) >= MIN_COMPARABLE else alike)[:, 1]
        return comparable

    def _keep(self, now: FloatArray) -> None:
        if not len(self._kept) or now[0] - self._kept[-1, 0] >= SPACING_SECONDS:
            self._kept = np.vstack([self._kept, now])[-MAX_KEPT:]

    def state(self) -> dict[str, Any]:
        """The state as plain data."""
        return {"end": self._end, "slow_from": self._slow_from, "kept": self._kept.ravel().tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores `state()`. Raises ValueError when it is malformed."""
        end, slow_from = state["end"], state["slow_from"]
        self._end = None if end is None else float(end)
        self._slow_from = None if slow_from is None else float(slow_from)
        self._kept = np.array(state["kept"], dtype=np.float64).reshape(-1, self._kept.shape[1])


def _summary(window: GroupWindow, metric: str, new: int) -> FloatArray:
    """A row of what is kept: (5,), NaN for what the last `new` samples do not tell."""
    every = max(-(-len(window.components) // SAMPLED), 1)
    fresh = (slice(None, None, every), slice(window.metrics[metric].shape[1] - new, None))
    values = window.metrics[metric][fresh]
    load = {name: amounts[fresh] for name, amounts in window.load.items()}
    told = usable(values, load)

    def typical(amounts: FloatArray) -> float:
        medians = row_median(np.where(told, amounts, np.nan))
        return float(row_median(medians[None, :])[0])

    demand = load.get("operations", load.get("throughput"))
    amounts = [values, demand, load.get("request_bytes")]
    middles = np.array([np.nan if column is None else typical(column) for column in amounts])
    logs = np.log(np.where(middles > 0, middles, np.nan))
    share = typical(load["read_share"]) if "read_share" in load else np.nan
    return np.array([window.end, *logs, share])
