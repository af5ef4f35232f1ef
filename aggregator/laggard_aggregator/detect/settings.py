"""What the operator may turn: the `[detect]` section, which every `[[group]]` may override."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

BinLimitMode = Literal["widen", "clip"]
DETECTORS = ("laggard", "cdf", "manhattan")


@dataclass(frozen=True, slots=True)
class DetectSettings:
    """How one group is judged. The defaults are the Intrepid paper's (4.2).

    `false_alarms_per_week` is for the whole site; `tests_at_once` is how many component-metric series share
    it. `thresholds[metric][component]` are a trained detector's; empty for `laggard`. They hold only for the
    `bin_limit` and `bin_limit_mode` of `cdf`'s histograms with which they were trained, and for the
    `functions[metric]` that `manhattan` was trained with: names, and what their sums are divided by.
    """

    detector: str = "laggard"
    interval_seconds: float = 15.0
    window_samples: int = 60
    shift_samples: int = 30
    confirm: int = 3
    false_alarms_per_week: float = 1.0
    tests_at_once: int = 1
    bin_limit: int = 1000
    bin_limit_mode: BinLimitMode = "widen"
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    functions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def window_seconds(self) -> float:
        """Length of a window."""
        return self.window_samples * self.interval_seconds

    @property
    def shift_seconds(self) -> float:
        """Time from one window's end to the next one's."""
        return self.shift_samples * self.interval_seconds


OF_FUNCTIONS = DetectSettings(
    detector="manhattan", interval_seconds=10.0, window_samples=6, shift_samples=3, confirm=3
)
"""How groups that are compared by functions are judged: windows of 60 s, moved by 30 s (HotDep)."""
