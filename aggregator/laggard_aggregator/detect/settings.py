"""Settings of detection: the `[detect]` section, which every `[[group]]` may override."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

LOADS = ("operations", "throughput", "request_bytes", "read_share")
"""Names in `GroupWindow.load` of the demand on a component."""
ByMetric = Mapping[str, Mapping[str, float]]
"""Numbers of one group: by metric, then by component or function."""

_RECORDED: Mapping[str, Any] = {"bin_limit": 1000, "bin_limit_mode": "widen"}
"""Options that records have always had, with the values of groups without them."""


@dataclass(frozen=True, slots=True)
class DetectSettings:
    """Judging of one group. The defaults are the Intrepid paper's (4.2).

    `false_alarms_per_week` is for the whole site; `tests_at_once` is how many component-metric series share
    it. `thresholds[metric][component]` are a trained detector's; they hold only for `options`, the values
    that the detector was trained with (`registry.Training`). `shadow`: the settings of a second detector that
    judges the same windows for comparison and raises no alarm; it has the same interval, windows and confirm.
    """

    detector: str = "laggard"
    interval_seconds: float = 15.0
    window_samples: int = 60
    shift_samples: int = 30
    confirm: int = 3
    false_alarms_per_week: float = 1.0
    tests_at_once: int = 1
    thresholds: ByMetric = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    shadow: "DetectSettings | None" = None

    @property
    def window_seconds(self) -> float:
        """Length of a window."""
        return self.window_samples * self.interval_seconds

    @property
    def shift_seconds(self) -> float:
        """Time from one window's end to the next one's."""
        return self.shift_samples * self.interval_seconds

    def record(self) -> dict[str, Any]:
        """The settings as plain data, options beside the others: for archives, and digests in snapshots."""
        plain = asdict(replace(self, shadow=None))
        thresholds, options = plain.pop("thresholds"), plain.pop("options")
        del plain["shadow"]
        shadow = {} if self.shadow is None else {"shadow": self.shadow.record()}
        return {**plain, **_RECORDED, "thresholds": thresholds, "functions": {}, **options, **shadow}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> "DetectSettings":
        """The settings that `record` was made of."""
        own = {each.name for each in fields(cls)}
        shadow = cls.of_record(record["shadow"]) if "shadow" in record else None
        absent = {**_RECORDED, "functions": {}}
        options = {
            name: value
            for name, value in record.items()
            if name not in own and not (name in absent and absent[name] == value)
        }
        plain = {name: value for name, value in record.items() if name in own - {"shadow"}}
        return cls(**plain, options=options, shadow=shadow)


OF_FUNCTIONS = DetectSettings(
    detector="manhattan", interval_seconds=10.0, window_samples=6, shift_samples=3, confirm=3
)
"""Default for groups that are compared by functions: windows of 60 s, moved by 30 s (HotDep)."""
