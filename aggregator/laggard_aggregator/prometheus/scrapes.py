"""Scraped counters of a server as readings of nodes and their components, one for each scrape interval.

Scrape interval k covers the times [(k - 1) D, k D), D seconds each; the last scrape in it counts.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from laggard_aggregator.prometheus.compare_map import BUCKET, MappedField, MappedSource, bound
from laggard_aggregator.prometheus.server import LabelledSeries, PrometheusServer
from laggard_common.wire.limits import MAX_NAME_CHARS
from laggard_common.wire.topics import is_level

INFO_SECONDS = 900.0
"""Time before a question in which an info metric may have been scraped last."""
STALE_SCRAPES = 2
"""A series stays the chosen one of its component until it is this many scrapes behind another."""
_PORT = re.compile(r":[0-9]+$")
_NOT_LEVEL = re.compile(r"[^A-Za-z0-9._:-]+", re.ASCII)
_MOST = 2.0**63
_NAME = "__name__"

Counter = tuple[str, float | None]
"""A counter's name, and the bound of a bucket."""
Key = tuple[str, ...]
Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ScrapedComponent:
    """A component of `node`, which is empty for none. `labels`: sorted."""

    node: str
    name: str
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ScrapedReading:
    """Values of a component's fields at `time`, epoch seconds; None for unknown ones."""

    component: ScrapedComponent
    time: float
    values: tuple[int | None, ...]


@dataclass(slots=True)
class ScrapeCounts:
    """Totals since the start. `left_out`: values that no counter has, components without a usable name;
    `ambiguous`: series of a component besides the chosen one, in the last answer; `series`: all of it;
    `counters`: their names.
    """

    left_out: int = 0
    ambiguous: int = 0
    series: int = 0
    counters: frozenset[str] = frozenset()


@dataclass(slots=True)
class ScrapeReader:
    """Reads one source from a server. `select`: further matchers; `interval`: of the scrapes, seconds.

    Several series of one component and counter, as of a pair of servers, count as one: the one chosen before
    while it goes on, else the one with the newest sample.
    """

    source: MappedSource
    interval: float
    select: str = ""
    counts: ScrapeCounts = field(default_factory=ScrapeCounts)
    _chosen: dict[Key, Labels] = field(default_factory=dict)

    def read(self, server: PrometheusServer, first: int, last: int) -> dict[int, list[ScrapedReading]]:
        """The readings of scrape intervals `first` to `last`, by interval. Raises ServiceError."""
        at = last * self.interval - 0.001
        seconds = math.ceil((last - first + 1) * self.interval)
        names = "|".join(self.source.counters)
        buckets = _spellings(self.source.bounds)
        matchers = ",".join(filter(None, [f'{_NAME}=~"{names}"', buckets, self.source.select, self.select]))
        series = server.instant(f"{{{matchers}}}[{seconds}s]", at)
        self.counts.series, self.counts.ambiguous = len(series), 0
        self.counts.counters = frozenset(entry.labels.get(_NAME, "") for entry in series)
        classes = self._classes(server, at)
        readings: dict[int, list[ScrapedReading]] = {}
        for key, counters in self._components(series).items():
            component = self._component(key, classes.get(key, {}), counters)
            if component is None:
                self.counts.left_out += 1
                continue
            for interval, reading in self._readings(component, counters):
                if first <= interval <= last:
                    readings.setdefault(interval, []).append(reading)
        return readings

    def _components(self, series: Iterable[LabelledSeries]) -> dict[Key, dict[Counter, LabelledSeries]]:
        """The chosen series of each component, by counter."""
        alike: dict[Key, dict[Labels, dict[Counter, LabelledSeries]]] = {}
        bounds = self.source.bounds
        own = {_NAME, *self.source.identity, *((BUCKET,) if bounds else ())}
        for entry in series:
            key = tuple(entry.labels.get(name, "") for name in self.source.identity)
            other = frozenset((name, value) for name, value in entry.labels.items() if name not in own)
            if entry.times.size and all(key):
                le = bound(entry.labels[BUCKET]) if bounds and BUCKET in entry.labels else None
                alike.setdefault(key, {}).setdefault(other, {})[entry.labels.get(_NAME, ""), le] = entry
        self._chosen = {key: self._choice(key, alternatives) for key, alternatives in alike.items()}
        return {key: alike[key][labels] for key, labels in self._chosen.items()}

    def _choice(self, key: Key, alternatives: Mapping[Labels, Mapping[Counter, LabelledSeries]]) -> Labels:
        """The labels of the series that count for a component, besides its own."""
        if len(alternatives) == 1:
            return next(iter(alternatives))
        self.counts.ambiguous += len(alternatives) - 1
        newest = {
            labels: max(float(entry.times[-1]) for entry in counters.values())
            for labels, counters in alternatives.items()
        }
        latest = max(newest.values()) - STALE_SCRAPES * self.interval
        before = self._chosen.get(key)
        if before is not None and newest.get(before, -math.inf) >= latest:
            return before
        return min((labels for labels, time in newest.items() if time >= latest), key=sorted)

    def _component(
        self, key: Key, info: Mapping[str, str], counters: Mapping[Counter, LabelledSeries]
    ) -> ScrapedComponent | None:
        """The component; None where its names cannot be those of a node or component."""
        labels: dict[str, str] = {}
        series = next(iter(counters.values())).labels
        texts = {**{name: series.get(name, "") for name in self.source.labels}, **info}
        labels |= {name: value for name, value in texts.items() if _is_text(value)}
        classes = ", ".join(texts[name] for name in self.source.peers if _is_text(texts.get(name, "")))
        if _is_text(classes):
            labels["class"] = classes
        node, parts = "", key
        if self.source.node:
            node, parts = node_name(key[0]), key[1:]
        else:
            labels["scope"] = "site"
        name = "/".join(parts)
        if self.source.comparison:
            labels["comparison"] = self.source.comparison
            name = f"{name} {self.source.comparison}"
        if not _is_text(name) or (self.source.node and not is_level(node)):
            return None
        return ScrapedComponent(node, name, tuple(sorted(labels.items())))

    def _readings(
        self, component: ScrapedComponent, counters: Mapping[Counter, LabelledSeries]
    ) -> Iterator[tuple[int, ScrapedReading]]:
        """The component's readings with their intervals: of each interval the last.

        NaN is no value: VictoriaMetrics shows stale markers among samples, Prometheus leaves them out.
        """
        by_time: dict[float, dict[Counter, float]] = {}
        for counter, entry in counters.items():
            for time, value in zip(entry.times.tolist(), entry.values.tolist(), strict=True):
                if not math.isnan(value):
                    by_time.setdefault(time, {})[counter] = value
        last = {math.floor(time / self.interval) + 1: time for time in sorted(by_time)}
        for interval, time in last.items():
            values = tuple(self._value(by_time[time], mapped) for mapped in self.source.fields)
            yield interval, ScrapedReading(component, time, values)

    def _value(self, scraped: Mapping[Counter, float], mapped: MappedField) -> int | None:
        """A field's value; None where a counter is missing, or is not a number that a counter can have."""
        le = bound(mapped.le) if mapped.le else None
        for names in filter(None, (mapped.counters, mapped.older)):
            values = [scraped.get((name, le)) for name in names]
            known = [value for value in values if value is not None]
            if len(known) == len(values):
                break
        else:
            return None
        total = sum(known) * mapped.scale
        if 0 <= total < _MOST:
            return round(total)
        self.counts.left_out += 1
        return None

    def _classes(self, server: PrometheusServer, at: float) -> dict[Key, dict[str, str]]:
        if not self.source.info:
            return {}
        expression = f"last_over_time({self.source.info}{{{self.select}}}[{round(INFO_SECONDS)}s])"
        return {
            tuple(entry.labels.get(name, "") for name in self.source.identity): {
                name: entry.labels.get(name, "") for name in self.source.info_labels
            }
            for entry in server.instant(expression, at)
        }


def _spellings(bounds: Iterable[float]) -> str:
    """A matcher for buckets with these bounds and for series that are no buckets; empty without bounds."""
    texts = {text for le in bounds for text in (f"{le:g}", f"{le!r}", "+Inf" if le == math.inf else "")}
    literal = (text.replace(".", "[.]").replace("+", "[+]") for text in sorted({"", *texts}))
    return f'{BUCKET}=~"{"|".join(literal)}"' if texts else ""


def _is_text(value: str) -> bool:
    return 0 < len(value) <= MAX_NAME_CHARS and value.isprintable()


def node_name(instance: str) -> str:
    """The name of the node of an `instance`: without port and brackets."""
    return _NOT_LEVEL.sub("_", _PORT.sub("", instance).strip("[]"))
