"""Latency and load of components, from the counters of a Prometheus server."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.offline.sample_grid import NS, Grid
from laggard_aggregator.prometheus.compare_map import (
    Compare,
    CompareMap,
    load_map,
    shipped_names,
)
from laggard_aggregator.prometheus.server import LabelledSeries, PrometheusServer
from laggard_aggregator.prometheus.survey import LOOK_SECONDS, scrape_interval
from laggard_aggregator.status.formatting import counted
from laggard_common.errors import ConfigError, InputError, TooMuchAskedError

LEAST_SCRAPES = 2
"""Samples that an interval must have: Prometheus gives no rate of fewer."""
MOST_STEPS = 10_000
"""Steps of one question; Prometheus answers at most 11,000."""
POINTS_A_QUESTION = 500_000
FIRST_STEPS = 60
"""Steps of the first question, when the number of series is not known."""
CELLS_A_PART = 4_000_000
"""Components times intervals that are read before they are put together."""
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
    tables = compare_map.compare
    scrapes = [(table, number) for table in tables if (number := _scrapes(server, table, at))]
    if not tables:
        raise ConfigError("", ["--map: has no [[compare]], so that there is nothing to judge"])
    if not scrapes:
        names = ", ".join(sorted({table.seconds[0] for table in tables}))
        raise InputError(server.url, f"no series of {names} in the {LOOK_SECONDS / 60:g} min before --to")
    seconds = max(
        scrape_interval(server, _selected(table.seconds[0], table), number, at) for table, number in scrapes
    )
    return float(LEAST_SCRAPES * 5 * max(round(seconds / 5), 1))


def _scrapes(server: PrometheusServer, table: Compare, at: float) -> float:
    """Samples that most series of the table's latency have before `at`; 0 without any."""
    selected = _selected(table.seconds[0], table)
    answer = server.instant(f"quantile(0.5, count_over_time({selected}[{LOOK_SECONDS}s]))", at)
    return float(answer[0].values[-1]) if answer else 0.0


def read_prometheus(  # noqa: PLR0917
    server: PrometheusServer,
    compare_map: CompareMap,
    span: Span,
    block_samples: int,
    remarks: list[str],
    advance: Callable[[float], None] = lambda _: None,
) -> Iterator[Grid]:
    """Yields each group's samples, one for each component and interval with data; `remarks` gets lines.

    Latency in ms is the quotient of two rates over the interval, 0 without an operation. Resets, stale
    markers and restarts are the server's. Of series that differ in other labels than those of the component
    and its group (pairs of Prometheus servers) the mean counts. `advance` gets the share that is read. Memory
    is that of the samples, as the span is read in parts. Raises ServiceError, InputError.
    """
    tables = compare_map.compare
    for number, table in enumerate(tables):
        reader = _TableReader(server, table, span.interval_seconds)
        groups: dict[str, _ReadGroup] = {}
        classes = _classes(server, table, span.end)
        first = 0
        while first < span.steps:
            last = _part_end(span, first, reader.part_steps, block_samples)
            for name, part in reader.read(span, first, last, block_samples, classes):
                groups.setdefault(name, _ReadGroup()).add(part)
            first = last
            advance((number + first / span.steps) / len(tables))
        shown = _shown(table, sorted({key for group in groups.values() for key in group.components}))
        for name, group in sorted(groups.items()):
            yield group.grid(name, shown, round(span.interval_seconds * NS), block_samples)
        if not groups:
            remarks.append(f"{server.url}: no series of {', '.join(table.seconds)} for {table.name!r}")
        if reader.impossible:
            values = counted(reader.impossible, "value")
            remarks.append(f"{server.url}: {table.name!r}: {values} not judged: no storage has them")
    remarks += [f"{server.url}: {warning}" for warning in server.warnings]


def _part_end(span: Span, first: int, steps: int, block_samples: int) -> int:
    """The end of a part of about `steps` steps that begins at step `first`: whole blocks since the epoch."""
    before = round(span.start / span.interval_seconds)
    end = max((before + first + steps) // block_samples, (before + first) // block_samples + 1)
    return min(end * block_samples - before, span.steps)


@dataclass(frozen=True, slots=True)
class _ReadPart:
    """Samples of C components in B blocks of S intervals: `values` (C, B S) by name, the metric first."""

    components: tuple[Key, ...]
    blocks: NDArray[np.int64]
    values: Mapping[str, FloatArray]


@dataclass(slots=True)
class _ReadGroup:
    """The parts of a group, in order of time."""

    parts: list[_ReadPart] = field(default_factory=list)

    def add(self, part: _ReadPart) -> None:
        """Adds a later part."""
        self.parts.append(part)

    @property
    def components(self) -> set[Key]:
        """Those of all parts."""
        return {key for part in self.parts for key in part.components}

    def grid(self, name: str, shown: Mapping[Key, str], interval_ns: int, block_samples: int) -> Grid:
        """The parts together. Afterwards they are gone."""
        keys = sorted(self.components)
        place = {key: at for at, key in enumerate(keys)}
        blocks = np.concatenate([part.blocks for part in self.parts])
        metric, *loads = self.parts[0].values
        together: dict[str, FloatArray] = {}
        for column in (metric, *loads):
            samples = together[column] = np.full((len(keys), blocks.size * block_samples), np.nan)
            begin = 0
            for part in self.parts:
                values = part.values[column]
                samples[[place[key] for key in part.components], begin : begin + values.shape[1]] = values
                begin += values.shape[1]
        self.parts = []
        return Grid(
            group=name,
            components=tuple(shown[key] for key in keys),
            interval_ns=interval_ns,
            block_samples=block_samples,
            blocks=blocks,
            metrics={metric: together.pop(metric)},
            load=together,
        )


@dataclass(slots=True)
class _TableReader:
    """Reads a table in parts. `impossible`: values that were left out.

    `part_steps`: intervals that the next part should have; `steps`: those of the next question, at most
    `most_steps`: fewer once the server refused a question for its size.
    """

    server: PrometheusServer
    table: Compare
    interval_seconds: float
    impossible: int = 0
    part_steps: int = FIRST_STEPS
    steps: int = FIRST_STEPS
    most_steps: int = MOST_STEPS

    def read(
        self, span: Span, first: int, last: int, block_samples: int, classes: Mapping[Key, Key]
    ) -> Iterator[tuple[str, _ReadPart]]:
        """The groups' samples in the intervals from `first` to `last`, where blocks have data."""
        table = self.table
        start = span.start + first * self.interval_seconds
        rates = {counter: self._rates(counter, start, last - first) for counter in table.counters}
        keys = sorted({key for counter in (*table.seconds, *table.operations) for key in rates[counter]})
        self.part_steps = min(max(CELLS_A_PART // max(len(keys), 1), FIRST_STEPS), MOST_STEPS)
        parts = len(table.component)
        groups: dict[str, list[Key]] = {}
        for key in keys:
            named = [value for value in (*key[parts:], *classes.get(key[:parts], ())) if value]
            groups.setdefault(", ".join([table.name, *named]), []).append(key)
        number = round(start / self.interval_seconds)
        for group, members in groups.items():
            part = self._part(members, rates, number, last - first, block_samples)
            if part.blocks.size:
                yield group, part

    def _rates(self, counter: str, start: float, steps: int) -> dict[Key, FloatArray]:
        """The rate of `counter` a second in each interval (T,), NaN where unknown, by component and group."""
        labels = (*self.table.component, *self.table.group_by)
        interval = f"{round(self.interval_seconds * 1000)}ms"
        rate = f"rate({_selected(counter, self.table)}[{interval}])"
        expression = f"avg by ({', '.join(dict.fromkeys(labels))}) ({rate})"
        rates: dict[Key, FloatArray] = {}
        first = 0
        while first < steps:
            last = min(first + self.steps, steps)
            begin, end = (start + self.interval_seconds * at for at in (first + 1, last))
            try:
                answer = self.server.over(expression, begin, end, self.interval_seconds)
            except TooMuchAskedError:
                if last - first == 1:
                    raise
                self.steps = self.most_steps = (last - first) // 2
                continue
            for series in answer:
                key = tuple(series.labels.get(name, "") for name in labels)
                place = np.round((series.times - start) / self.interval_seconds).astype(np.int64) - 1
                inside = (place >= 0) & (place < steps) & np.isfinite(series.values)
                values = rates.setdefault(key, np.full(steps, np.nan))
                values[place[inside]] = series.values[inside]
            first = last
            self.steps = min(self.most_steps, max(POINTS_A_QUESTION // max(len(answer), 1), FIRST_STEPS))
        return rates

    def _part(
        self,
        keys: Sequence[Key],
        rates: Mapping[str, Mapping[Key, FloatArray]],
        number: int,
        steps: int,
        block_samples: int,
    ) -> _ReadPart:
        """The samples of a group's components; interval `number` is the first of `steps`."""
        values = self._values(keys, rates, steps)
        latency = values[self.table.metric]
        low = number // block_samples
        high = -(-(number + steps) // block_samples)
        shape = (len(keys), (high - low) * block_samples)
        begin = number - low * block_samples
        known = np.zeros(shape[1], dtype=np.bool_)
        known[begin : begin + steps] = np.isfinite(latency).any(axis=0)
        has_data = known.reshape(-1, block_samples).any(axis=1)
        kept = np.repeat(has_data, block_samples)
        columns: dict[str, FloatArray] = {}
        for name, column in values.items():
            whole = np.full(shape, np.nan)
            whole[:, begin : begin + steps] = np.where(np.isfinite(latency), column, np.nan)
            columns[name] = whole[:, kept]
        parts = len(self.table.component)
        blocks = np.flatnonzero(has_data).astype(np.int64) + low
        return _ReadPart(tuple(key[:parts] for key in keys), blocks, columns)

    def _values(
        self, keys: Sequence[Key], rates: Mapping[str, Mapping[Key, FloatArray]], steps: int
    ) -> dict[str, FloatArray]:
        """The metric and the loads (C, T). Counts those that are impossible."""
        table, unknown = self.table, np.full(steps, np.nan)

        def total(counters: Sequence[str]) -> FloatArray:
            """Rates a second (C, T): the sum over `counters`; unknown where one is."""
            return np.array(
                [np.sum([rates[name].get(key, unknown) for name in counters], axis=0) for key in keys]
            )

        seconds, operations = total(table.seconds), total(table.operations)
        impossible = (seconds < 0) | (operations < 0)
        self.impossible += int(impossible.sum())
        with np.errstate(divide="ignore", invalid="ignore"):
            latency = np.where(operations == 0, 0.0, 1000 * table.scale * seconds / operations)
            latency[impossible | ~np.isfinite(seconds)] = np.nan
            served = np.array([self._served(key, rates, steps) for key in keys]) if table.load else operations
            values = {table.metric: latency, "operations": served * self.interval_seconds}
            read = total(table.read_bytes) if table.read_bytes else None
            written = total(table.written_bytes) if table.written_bytes else None
            moved = [counter for counter in (read, written) if counter is not None]
            if moved:
                values["throughput"] = throughput = np.sum(moved, axis=0)
                values["request_bytes"] = np.where(operations > 0, throughput / operations, np.nan)
            if read is not None and written is not None:
                values["read_share"] = np.where(throughput > 0, read / throughput, np.nan)
        return values

    def _served(self, key: Key, rates: Mapping[str, Mapping[Key, FloatArray]], steps: int) -> FloatArray:
        """What a component did a second (T,), by the counters of `load` that it has; unknown without any."""
        known = [rates[name][key] for name in self.table.load if key in rates[name]]
        return np.sum(known, axis=0) if known else np.full(steps, np.nan)


def _selected(counter: str, table: Compare) -> str:
    return f"{counter}{{{table.select}}}"


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
    answer: list[LabelledSeries] = server.instant(f"last_over_time({table.info}[{LOOK_SECONDS}s])", at)
    return {
        tuple(series.labels.get(name, "") for name in table.component): tuple(
            series.labels.get(name, "") for name in table.info_labels
        )
        for series in answer
    }
