"""Windows and verdicts: the input and output of all detectors (`registry.Detector`).

Shapes: C components, H samples of history before the window, W samples in it. Values are float64; NaN means
that the sample is missing (the component was absent), never that it was zero.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

MAX_CAUSES = 10
"""Causes of an anomalous component that its verdict names (HotDep: the top ten)."""
MIN_PEERS = 4
"""A group with fewer live members gets no verdict."""
TOO_FEW = "too few members"
"""Note of such a group."""


@dataclass(frozen=True, slots=True)
class Level:
    """One kind of parent. `of` (C,): for each component the place of its parent in `parents`, -1 for none."""

    name: str
    parents: tuple[str, ...]
    of: IntArray


@dataclass(frozen=True, slots=True)
class GroupWindow:
    """All metrics of one peer group over one window.

    `components`: C names, each once, in any order; state is kept by name. `metrics`: arrays (C, H + W) by
    name; the first `history` columns lie before the window. For latency metrics a value is 0 in an interval
    without I/O. `load`: arrays of the same shape that describe the demand on the component, by name:
    `operations` (I/Os completed in the interval), `throughput` (bytes per second), `request_bytes` (mean
    size), `read_share` (0-1); and `busy_share`, the share of the interval in which it served I/O (0-1). Each
    may be missing. `start`, `end`: epoch seconds. `worse`: by metric, +1 where larger values are worse
    (latency, the default), -1 where smaller are (throughput), 0 for behaviour. `tests_at_once`:
    component-metric series of the site that share the budget of false alarms as of now, 0 for the number in
    the detector's settings. `explanations`: metrics that raise no alarm. `attributes`: by attribute (`model`,
    `pool`) the values that agents sent, one for each component, empty if unknown. `sides`: the attributes
    along which the group may fall into sides.
    """

    group: str
    components: tuple[str, ...]
    start: float
    end: float
    history: int
    metrics: Mapping[str, FloatArray]
    load: Mapping[str, FloatArray] = field(default_factory=dict)
    worse: Mapping[str, int] = field(default_factory=dict)
    tests_at_once: int = 0
    explanations: frozenset[str] = frozenset()
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sides: tuple[Level, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionWindow:
    """The activity of the functions of a peer group's nodes over one window (HotDep, "Feature-Vector").

    `components`: C nodes, each once, in any order; `functions`: F names, each once. `metrics`: the window's
    sums (C, F) by name (`samples`, `count` or `time` in seconds), 0 where a node never ran the function; a
    row with a NaN is an absent node. `seconds` (C, F): selects the functions that count, CPU time for
    `samples` and self time, which counts waiting, for `count` and `time`. `left_out`: functions beyond the
    store's limit. `start`, `end`: epoch seconds.
    """

    group: str
    components: tuple[str, ...]
    functions: tuple[str, ...]
    start: float
    end: float
    metrics: Mapping[str, FloatArray]
    seconds: FloatArray
    left_out: int = 0


Window = GroupWindow | FunctionWindow


@dataclass(frozen=True, slots=True)
class DutyCycle:
    """Of a component that is slow at times: in which `share` (0-1) of them, how many times slower then."""

    share: float
    severity: float


STEADY = DutyCycle(0.0, 0.0)
"""The duty cycle of a component that is always slow, or whose duty cycle is unknown."""


@dataclass(frozen=True, slots=True)
class StopTally:
    """Stops of a component in the last `seconds`: how many, `shortest`, `longest` and `lost` in all, seconds.

    `peers`: the number that three quarters of its peers had at most.
    """

    count: int
    shortest: float
    longest: float
    lost: float
    seconds: float
    peers: float

    def text(self) -> str:
        """As in `6 stops of 2 to 10 s in the last 2 hours, 40 s lost; peers: none`."""
        low, high = f"{self.shortest:.0f}", f"{self.longest:.0f}"
        length = high if low == high else f"{low} to {high}"
        peers = f"{self.peers:.0f}" if self.peers else "none"
        hours = f"{self.seconds / 3600.0:.0f} hours"
        told = f"{self.count} stops of {length} s in the last {hours}"
        return f"{told}, {self.lost:.0f} s lost; peers: {peers}"


@dataclass(frozen=True, slots=True)
class Verdicts:
    """A detector's verdicts on one window: one entry per component, in the window's order.

    `judged` (C,): False where the component had too few samples or the group too few members; its other
    entries then mean nothing. `anomalous` (C,): the raw flag of this window, before k of 2k-1. `score`
    (C,): larger is worse, in the detector's own unit. `severity` (C,): how many times slower than its
    peers, 1.0 = like them, NaN where there is no ratio. `reference` (C,): the peers' value that the
    component was held against (NaN if none), `observed` (C,): its own, both in the metric's unit. `note`:
    empty, or why the group as a whole was not judged (`too few members`, `not a group of peers`).
    `undecided`: pairs left open by a pair budget. `causes`: by anomalous component, the largest
    differences first, each with its amount. `duty_cycles`: of components that are slow at times only and
    were anomalous of late. `onsets`: of anomalous components whose slowness is known to have begun before
    this window, its begin; epoch seconds. `stops`: of components that stop at times, unlike their peers,
    which is anomalous by itself. `clear` (C,): anomalous by so much, and for so much of the window,
    that the second of two anomalous windows in a row counts double; None = nowhere. `parted` (C,): log
    ratios to the whole group in this window, larger is worse, where its members were held against their own
    sides; None where the group has none.
    """

    judged: BoolArray
    anomalous: BoolArray
    score: FloatArray
    severity: FloatArray
    observed: FloatArray
    reference: FloatArray
    note: str = ""
    undecided: int = 0
    causes: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    duty_cycles: Mapping[str, DutyCycle] = field(default_factory=dict)
    onsets: Mapping[str, float] = field(default_factory=dict)
    stops: Mapping[str, StopTally] = field(default_factory=dict)
    clear: BoolArray | None = None
    parted: FloatArray | None = None


def stop_text(verdicts: Verdicts, component: str) -> str:
    """`StopTally.text` of a component; empty where it has none."""
    stops = verdicts.stops.get(component)
    return "" if stops is None else stops.text()


def not_judged(components: int, note: str) -> Verdicts:
    """Verdicts for a window in which no component can be judged."""
    nan = np.full(components, np.nan)
    no = np.zeros(components, dtype=np.bool_)
    return Verdicts(no, no.copy(), np.zeros(components), nan, nan.copy(), nan.copy(), note)


def without(window: Window, components: Collection[str]) -> Window | None:
    """`window` without `components`; None when no component is left."""
    gone = set(components)
    keep = [row for row, name in enumerate(window.components) if name not in gone]
    if not keep:
        return None
    left: dict[str, Any] = {
        "components": tuple(window.components[row] for row in keep),
        "metrics": {name: values[keep] for name, values in window.metrics.items()},
    }
    if isinstance(window, FunctionWindow):
        return replace(window, **left, seconds=window.seconds[keep])
    return replace(
        window,
        **left,
        load={name: values[keep] for name, values in window.load.items()},
        attributes={name: tuple(values[row] for row in keep) for name, values in window.attributes.items()},
        sides=tuple(replace(level, of=level.of[keep]) for level in window.sides),
    )
