"""Latency and load of components, from the counters of a Prometheus server."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.offline.regrid import Rows
from laggard_aggregator.offline.sample_grid import NS
from laggard_aggregator.prometheus.compare_map import (
    Compare,
    CompareMap,
    load_map,
    shipped_names,
)
from laggard_aggregator.prometheus.server import LabelledSeries, PrometheusServer
from laggard_aggregator.status.formatting import counted
from laggard_common.errors import ConfigError, InputError, TooMuchAskedError

LEAST_SCRAPES = 2
"""Samples that an interval must have: Prometheus gives no rate of fewer."""
MOST_STEPS = 10_000
"""Steps of one question; Prometheus answers at most 11,000."""
POINTS_A_QUESTION = 500_000
_LOOK_SECONDS = 900.0
"""Time before the end in which a server's series and their scrapes are counted."""
_PORT = re.compile(r":[0-9]+$")

Key = tuple[str, ...]
"""Values of a component's labels, and of those that its group is named by."""


@dataclass(frozen=True, slots=True)
class Span:
    """Intervals of `interval_seconds` from `start` to `end`, epoch seconds at multiples of it."""

    start: float
    end: float
    interval_seconds: float

    @property
    def steps(self) -> int:
        """Number of intervals."""
        return round((self.end - self.start) / self.interval_seconds)


def aligned(start: float, end: float, interval_seconds: float) -> Span:
    """The span of the whole intervals between two times. Raises ConfigError where there is none."""
    first = np.ceil(start / interval_seconds) * interval_seconds
    last = np.floor(end / interval_seconds) * interval_seconds
    if last <= first:
        raise ConfigError("", [f"--from, --to: no whole interval of {interval_seconds:g} s between them"])
    return Span(float(first), float(last), interval_seconds)


def fitting_map(server: PrometheusServer, at: float) -> CompareMap:
    """All tables of the shipped maps whose latency the server has at `at`. Raises InputError for none."""
    compare, lacking = [], []
    for name in shipped_names():
        every = load_map(name).compare
        tables = [table for table in every if _scrapes(server, table, at)]
        compare += tables
        if every and not tables:
            lacking.append(f"{name}: {every[0].seconds[0]}")
    if not compare:
        raise InputError(
            server.url, f"has no series of the shipped maps ({'; '.join(lacking)}): --map FILE names others"
        )
    return CompareMap(tuple(compare))


def least_interval(server: PrometheusServer, compare_map: CompareMap, at: float) -> float:
    """Seconds of the shortest interval that has LEAST_SCRAPES samples. Raises InputError without series."""
    scrapes = [_scrapes(server, table, at) for table in compare_map.compare]
    known = [number for number in scrapes if number]
    if not scrapes:
        raise ConfigError("", ["--map: has no [[compare]], so that there is nothing to judge"])
    if not known:
        names = ", ".join(sorted({table.seconds[0] for table in compare_map.compare}))
        raise InputError(server.url, f"no series of {names} in the {_LOOK_SECONDS / 60:g} min before --to")
    seconds = _LOOK_SECONDS / min(known)
    return float(LEAST_SCRAPES * 5 * max(round(seconds / 5), 1))


def _scrapes(server: PrometheusServer, table: Compare, at: float) -> float:
    """Samples that most series of the table's latency have before `at`; 0 without any."""
    selected = _selected(table.seconds[0], table)
    answer = server.instant(f"quantile(0.5, count_over_time({selected}[{round(_LOOK_SECONDS)}s]))", at)
    return float(answer[0].values[-1]) if answer else 0.0


def read_prometheus(
    server: PrometheusServer,
    compare_map: CompareMap,
    span: Span,
    remarks: list[str],
    advance: Callable[[float], None] = lambda _: None,
) -> Iterator[Rows]:
    """Yields each group's samples, one for each component and interval with data; `remarks` gets lines.

    Latency in ms is the quotient of two rates over the interval, 0 without an operation. Resets, stale
    markers and restarts are the server's. Of series that differ in other labels than those of the component
    and its group (pairs of Prometheus servers) the mean counts. `advance` gets the share that is read.
    Raises ServiceError, InputError.
    """
    tables = compare_map.compare
    total = sum(len(table.counters) for table in tables)
    done = 0.0

    def read(share: float) -> None:
        advance((done + share) / total)

    for table in tables:
        rates: dict[str, dict[Key, FloatArray]] = {}
        for counter in table.counters:
            rates[counter] = _rates(server, table, counter, span, read)
            done += 1.0
        yield from _groups(server, table, rates, span, remarks)
    remarks += [f"{server.url}: {warning}" for warning in server.warnings]


def _selected(counter: str, table: Compare) -> str:
    return f"{counter}{{{table.select}}}"


def _rates(
    server: PrometheusServer, table: Compare, counter: str, span: Span, advance: Callable[[float], None]
) -> dict[Key, FloatArray]:
    """The rate of `counter` a second over each interval (T,), NaN where unknown, by component and group."""
    labels = (*table.component, *table.group_by)
    interval = f"{round(span.interval_seconds * 1000)}ms"
    rate = f"rate({_selected(counter, table)}[{interval}])"
    expression = f"avg by ({', '.join(dict.fromkeys(labels))}) ({rate})"
    rates: dict[Key, FloatArray] = {}
    first, steps, most = 0, 60, MOST_STEPS
    while first < span.steps:
        last = min(first + steps, span.steps)
        begin, end = (span.start + span.interval_seconds * at for at in (first + 1, last))
        try:
            answer = server.over(expression, begin, end, span.interval_seconds)
        except TooMuchAskedError:
            if last - first == 1:
                raise
            steps = most = (last - first) // 2
            continue
        for series in answer:
            key = tuple(series.labels.get(name, "") for name in labels)
            place = np.round((series.times - span.start) / span.interval_seconds).astype(np.int64) - 1
            inside = (place >= 0) & (place < span.steps) & np.isfinite(series.values)
            values = rates.setdefault(key, np.full(span.steps, np.nan))
            values[place[inside]] = series.values[inside]
        first = last
        steps = min(most, max(POINTS_A_QUESTION // max(len(answer), 1), 60))
        advance(first / span.steps)
    return rates


def _groups(
    server: PrometheusServer,
    table: Compare,
    rates: Mapping[str, Mapping[Key, FloatArray]],
    span: Span,
    remarks: list[str],
) -> Iterator[Rows]:
    keys = sorted({key for counter in (*table.seconds, *table.operations) for key in rates[counter]})
    if not keys:
        remarks.append(f"{server.url}: no series of {', '.join(table.seconds)} for {table.name!r}")
        return
    parts = len(table.component)
    shown = _shown(table, [key[:parts] for key in keys])
    classes = _classes(server, table, span.end)
    groups: dict[str, list[Key]] = {}
    for key in keys:
        named = [value for value in (*key[parts:], *classes.get(key[:parts], ())) if value]
        groups.setdefault(", ".join([table.name, *named]), []).append(key)
    impossible = 0
    for group, members in sorted(groups.items()):
        rows, left_out = _rows(table, group, members, shown, rates, span)
        impossible += left_out
        yield rows
    if impossible:
        remarks.append(
            f"{server.url}: {table.name!r}: {counted(impossible, 'value')} not judged: no storage has them"
        )


def _rows(  # noqa: PLR0917
    table: Compare,
    group: str,
    keys: Sequence[Key],
    shown: Mapping[Key, str],
    rates: Mapping[str, Mapping[Key, FloatArray]],
    span: Span,
) -> tuple[Rows, int]:
    """The group's rows, and how many values were impossible."""
    unknown = np.full(span.steps, np.nan)

    def total(counters: Sequence[str]) -> FloatArray:
        """Rates a second (C, T): the sum over `counters`; unknown where one is."""
        return np.array(
            [np.sum([rates[name].get(key, unknown) for name in counters], axis=0) for key in keys]
        )

    seconds, operations = total(table.seconds), total(table.operations)
    impossible = (seconds < 0) | (operations < 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        latency = np.where(operations == 0, 0.0, 1000 * table.scale * seconds / operations)
        latency[impossible | ~np.isfinite(seconds)] = np.nan
        load = {"operations": operations * span.interval_seconds}
        read = total(table.read_bytes) if table.read_bytes else None
        written = total(table.written_bytes) if table.written_bytes else None
        moved = [counter for counter in (read, written) if counter is not None]
        if moved:
            load["throughput"] = np.sum(moved, axis=0)
            load["request_bytes"] = np.where(operations > 0, load["throughput"] / operations, np.nan)
        if read is not None and written is not None:
            load["read_share"] = np.where(load["throughput"] > 0, read / load["throughput"], np.nan)
    component, step = np.nonzero(np.isfinite(latency))
    ends = span.start + span.interval_seconds * (step + 1.0)
    time_ns: NDArray[np.int64] = np.round(ends * 1000).astype(np.int64) * (NS // 1000)
    names = tuple(shown[key[: len(table.component)]] for key in keys)
    rows = Rows(
        group=group,
        components=names,
        component=component.astype(np.int32),
        time_ns=time_ns,
        metrics={table.metric: latency[component, step]},
        load={name: values[component, step] for name, values in load.items()},
        weight="operations",
    )
    return rows, int(impossible.sum())


def _shown(table: Compare, components: Sequence[Key]) -> dict[Key, str]:
    """Names of components: their labels' values; of an `instance` without its port where that is unique."""
    known = list(dict.fromkeys(components))
    whole = {key: "/".join(key) for key in known}
    short = {
        key: "/".join(
            _PORT.sub("", value) if label == "instance" else value
            for label, value in zip(table.component, key, strict=True)
        )
        for key in known
    }
    return short if len(set(short.values())) == len(known) else whole


def _classes(server: PrometheusServer, table: Compare, at: float) -> dict[Key, Key]:
    """Values of the info metric's labels, by component; the last in the time before `at` counts."""
    if not table.info:
        return {}
    answer: list[LabelledSeries] = server.instant(
        f"last_over_time({table.info}[{round(_LOOK_SECONDS)}s])", at
    )
    return {
        tuple(series.labels.get(name, "") for name in table.component): tuple(
            series.labels.get(name, "") for name in table.info_labels
        )
        for series in answer
    }
