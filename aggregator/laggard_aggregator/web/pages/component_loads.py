"""The table of components by their load, each with its strip of the heat map."""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.jobs.loads.component_load import GAP, ComponentLoad
from laggard_aggregator.jobs.loads.heat_map import LoadMap
from laggard_aggregator.jobs.loads.kinds import COMPUTE, KINDS
from laggard_aggregator.status import urls
from laggard_aggregator.status.urls import TimeRange
from laggard_aggregator.web.pages.charts import GONE, MAX_WINDOWS, SLOW, SLOWEST, WELL, WIDE, drawing
from laggard_aggregator.web.pages.tables import Filter, PageColumn, PageTable, Query

_LEVELS: Final = np.array([WELL, WIDE, SLOW, SLOWEST, GONE], dtype=np.uint8)
"""Levels of a heat map by class; the last is that of GAP."""
_SHARES: Final = (("above_90", "> 90%"), ("to_90", ""), ("to_50", ""), ("to_10", ""))
"""Columns of the classes, highest first, and their headings: the page has the strips."""
_LEGEND: Final = (
    (SLOWEST, "above 90% of the peak"),
    (SLOW, "50 to 90%"),
    (WIDE, "10 to 50%"),
    (WELL, "0 to 10%"),
    (GONE, "no data"),
)
_JOBS_ON: Final = {"osts": "ost", "forwarders": "ost", COMPUTE: "node", "mdts": "ost", "bricks": "ost"}
"""The parameter of the list of jobs that names such a component: its `ost` is any component."""


class LoadStrips(NamedTuple):
    """Components, most loaded first, each with its strip of the heat map; and the axis of the map."""

    table: PageTable[int]
    axis: dict[str, Any]


def component_table(loads: ComponentLoad, kind_name: str, when: TimeRange, query: Query) -> LoadStrips:
    """The components of the kind `kind_name`."""
    kind, heat = KINDS[kind_name], loads.heat
    steps = heat.rates.shape[1]
    merged = -(-steps // MAX_WINDOWS)
    first = np.arange(0, steps, merged)
    levels = _narrowed(loads.classes, first)
    mean, count = loads.mean, (~np.isnan(heat.rates)).sum(axis=1)
    is_known = count > 0
    used = np.divide(mean, loads.peak, out=np.zeros(len(mean)), where=is_known & (loads.peak > 0))
    used[~is_known] = np.nan
    shares = loads.time_share[:, ::-1]

    def row(at: int) -> dict[str, Any]:
        name, above = heat.components[at], shares[at, 0]
        label = "no data" if np.isnan(above) else f"above 90% of the peak {above:.0%} of the time"
        return {
            "name": name,
            "url": urls.node(name) if kind.has_nodes else urls.page("/search", q=name),
            "jobs": urls.page(
                "/jobs", **{_JOBS_ON[kind_name]: name}, **{"from": _stamp(when.start), "to": _stamp(when.end)}
            )
            if kind_name in _JOBS_ON
            else "",
            "mean": mean[at] / kind.unit_amount,
            "used": used[at],
            "largest": loads.largest[at] / kind.unit_amount,
            "peak": loads.peak[at] / kind.unit_amount if is_known[at] else np.nan,
            "latency": heat.latency[at] * 1e3,
            "in_flight": heat.in_flight[at],
            "above": above,
            "picture": drawing(levels[at : at + 1], f"{name}: {label}", "strip"),
        }

    def figures(key: str, heading: str, values: NDArray[np.float64]) -> PageColumn[int]:
        return PageColumn[int](key, heading, lambda at: float(values[at]), right=True)

    columns = (
        PageColumn[int]("component", kind.noun[0].upper() + kind.noun[1:], lambda at: heat.components[at]),
        PageColumn[int]("start", "", lambda _: heat.start, is_time=True),
        PageColumn[int]("step_seconds", "", lambda _: heat.step_seconds),
        PageColumn[int]("steps", "", lambda at: int(count[at])),
        PageColumn[int]("unit", "", lambda _: kind.counted),
        figures("mean", "Mean", mean),
        figures("mean_share", "of peak", used),
        figures("largest", "Largest", loads.largest),
        figures("peak", "Peak", np.where(is_known, loads.peak, np.nan)),
        figures("latency_seconds", "Latency", heat.latency),
        figures("in_flight", "In flight", heat.in_flight),
        *(figures(f"time_{key}", heading, shares[:, place]) for place, (key, heading) in enumerate(_SHARES)),
    )
    order = np.lexsort((-np.nan_to_num(used), -np.nan_to_num(shares[:, 0]), ~is_known))
    table = PageTable(
        "loads",
        columns,
        order.tolist(),
        query,
        filters=(Filter[int]("component", "Component", lambda at: heat.components[at]),),
        keep=("of", "from", "to"),
        make=row,
    )
    return LoadStrips(table, {"kind": kind, "legend": _LEGEND, "merged": merged, **_axis(heat, first)})


def _axis(heat: LoadMap, first: NDArray[np.int64]) -> dict[str, Any]:
    """Times of a map whose strips begin at the steps `first` (M,)."""
    steps = heat.rates.shape[1]
    edges = heat.start + heat.step_seconds * np.stack([first, np.append(first[1:], steps)], axis=1).ravel()
    quarters = sorted({len(first) * part // 4 for part in range(4)})
    return {
        "start": heat.start,
        "end": heat.start + steps * heat.step_seconds,
        "step_seconds": heat.step_seconds,
        "times": [heat.start + heat.step_seconds * float(first[at]) for at in quarters],
        "spans": " ".join(f"{edge:.12g}" for edge in np.diff(edges, prepend=0.0).tolist()),
    }


def _stamp(at: float) -> str:
    """A time as a parameter."""
    return f"{at:.0f}"


def _narrowed(classes: NDArray[np.int8], first: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Levels (N, M) of classes (N, T): the highest class of the steps from each of `first` (M,) on."""
    assert GAP == -1, "its level is the last"
    return _LEVELS[np.maximum.reduceat(classes, first, axis=1)]
