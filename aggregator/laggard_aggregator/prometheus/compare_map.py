"""Maps from the series of a Prometheus server to components, latency and load.

`[[compare]]` tables are for `laggard diagnose`; `[[source]]` tables are for the daemon, and fill the fields
of a source that Laggard compares. A map without these is compared as the source `prometheus`.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from laggard_common import config
from laggard_common.config import above, checked, distinct, each, non_empty, topic_level
from laggard_common.errors import ConfigError

PLAIN = "prometheus"
"""The source of comparisons that have no source of their own."""
SHIPPED = Path(__file__).with_name("maps")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
BUCKET = "le"
"""The label of a histogram's buckets: the upper bound of the values that a bucket counts."""
_ALL = "+Inf"


def _label(name: str) -> str | None:
    return None if _LABEL.fullmatch(name) else f"no name of a label: {name!r}"


def bound(text: str) -> float:
    """The number of a bucket's label, which servers write as `1`, `1.0` or `1e+00`; NaN for none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _bound(text: str) -> str | None:
    return f"no bound of a bucket: {text!r}" if math.isnan(bound(text)) else None


@dataclass(frozen=True, slots=True)
class Compare:
    """Components whose peers are all others with the same values of `group_by` and `info_labels`.

    `component`: labels that name one. `select`: matchers, as within the braces of PromQL. `seconds` and
    `operations`: counters whose sums' quotient is the latency; `scale`: seconds in one unit of `seconds`.
    `read_bytes`, `written_bytes`: their load. `load`: counters of all that a component does, where its
    `operations` are but a part; those that a component lacks are left out.
    `buckets`: a histogram of the latency, whose `bounds` the daemon archives; operations above the bound
    `slow_above`, one of them, are slow.
    `info`: a metric whose labels `info_labels` tell components apart, matched by the labels of `component`.
    """

    name: str = field(metadata=checked(non_empty()))
    metric: str = field(metadata=checked(non_empty()))
    component: tuple[str, ...] = field(metadata=checked(non_empty()))
    seconds: tuple[str, ...] = field(metadata=checked(non_empty()))
    operations: tuple[str, ...] = field(metadata=checked(non_empty()))
    scale: float = field(default=1.0, metadata=checked(above(0)))
    read_bytes: tuple[str, ...] = ()
    written_bytes: tuple[str, ...] = ()
    load: tuple[str, ...] = ()
    select: str = ""
    group_by: tuple[str, ...] = ()
    info: str = ""
    info_labels: tuple[str, ...] = ()
    buckets: str = ""
    bounds: tuple[str, ...] = field(default=(), metadata=checked(distinct(), each(_bound)))
    slow_above: str = ""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Names that no metric or label can have, and settings that do not go together."""
        if self.buckets and not _NAME.fullmatch(self.buckets):
            yield "buckets", f"no name of a metric: {self.buckets!r}"
        if not bool(self.buckets) == bool(self.bounds) == bool(self.slow_above):
            yield "buckets", "goes with bounds and slow_above"
        elif self.slow_above not in ("", *self.bounds) or self.slow_above == _ALL:
            yield "slow_above", f"expected one of {', '.join(self.bounds)}"
        counters = {
            "seconds": self.seconds,
            "operations": self.operations,
            "read_bytes": self.read_bytes,
            "written_bytes": self.written_bytes,
            "load": self.load,
        }
        for key, names in counters.items():
            yield from (
                (key, f"no name of a metric: {name!r}") for name in names if not _NAME.fullmatch(name)
            )
        labels = {"component": self.component, "group_by": self.group_by, "info_labels": self.info_labels}
        for key, names in labels.items():
            yield from (
                (key, f"no name of a label: {name!r}") for name in names if not _LABEL.fullmatch(name)
            )
        if self.info and not _NAME.fullmatch(self.info):
            yield "info", f"no name of a metric: {self.info!r}"
        if bool(self.info) != bool(self.info_labels):
            yield "info", "goes with info_labels"

    @property
    def counters(self) -> tuple[str, ...]:
        """All counters, each once."""
        moved = (*self.read_bytes, *self.written_bytes)
        return tuple(dict.fromkeys((*self.seconds, *self.operations, *moved, *self.load)))


@dataclass(frozen=True, slots=True)
class MappedField:
    """The field `name` of a source: the sum of `counters`, times `scale`. `le`: of buckets, their bound.

    `older`: counters in their place where one is missing, of exporters that have other names for them.
    """

    name: str = field(metadata=checked(non_empty()))
    counters: tuple[str, ...] = field(metadata=checked(non_empty()))
    scale: float = field(default=1.0, metadata=checked(above(0)))
    le: str = ""
    older: tuple[str, ...] = ()

    def problems(self) -> Iterator[tuple[str, str]]:
        """Names that no metric can have."""
        for key, names in (("counters", self.counters), ("older", self.older)):
            for name in names:
                if not _NAME.fullmatch(name):
                    yield key, f"no name of a metric: {name!r}"
        if self.le and (problem := _bound(self.le)):
            yield "le", problem


@dataclass(frozen=True, slots=True)
class MappedSource:
    """The fields of a source, by component. `select`, `info`, `info_labels` as in Compare.

    `node`: the label with the component's node, whose port is left out; empty for components that have none.
    `component`: labels whose values name a component of the node. `labels`: labels of the series that become
    the component's; with `info_labels` they tell its peers. `comparison`: ends the component's name, and
    tells its peers.
    """

    name: str = field(metadata=checked(topic_level()))
    component: tuple[str, ...] = field(metadata=checked(non_empty(), each(_label)))
    fields: tuple[MappedField, ...] = field(metadata=checked(non_empty()))
    node: str = ""
    select: str = ""
    labels: tuple[str, ...] = field(default=(), metadata=checked(each(_label)))
    info: str = ""
    info_labels: tuple[str, ...] = field(default=(), metadata=checked(each(_label)))
    comparison: str = ""

    @property
    def counters(self) -> tuple[str, ...]:
        """All counters, each once."""
        return tuple(dict.fromkeys(name for own in self.fields for name in (*own.counters, *own.older)))

    @property
    def bounds(self) -> frozenset[float]:
        """Bounds of all buckets."""
        return frozenset(bound(mapped.le) for mapped in self.fields if mapped.le)

    @property
    def peers(self) -> tuple[str, ...]:
        """Labels whose values become the label `class`, which the source `prometheus` compares by."""
        return (*self.labels, *self.info_labels) if self.name == PLAIN else ()

    @property
    def identity(self) -> tuple[str, ...]:
        """Labels that tell components apart."""
        return (self.node, *self.component) if self.node else self.component


@dataclass(frozen=True, slots=True)
class CompareMap:
    """A map file. One without `compare` has evidence alone, for the daemon."""

    compare: tuple[Compare, ...] = ()
    source: tuple[MappedSource, ...] = ()

    def problems(self) -> Iterator[tuple[str, str]]:
        """A map of nothing."""
        if not (self.compare or self.source):
            yield "compare", "missing, and no source either"

    @property
    def sources(self) -> tuple[MappedSource, ...]:
        """The sources of the daemon: those of the file, or one for each of its comparisons."""
        return self.source or tuple(map(_plain, self.compare))


def _plain(table: Compare) -> MappedSource:
    """The source of a comparison; an `instance` among its labels is the node."""
    node = "instance" if "instance" in table.component and len(table.component) > 1 else ""
    parts = {
        "operations": (table.operations, 1.0),
        "busy_us": (table.seconds, 1e6 * table.scale),
        "read_bytes": (table.read_bytes, 1.0),
        "written_bytes": (table.written_bytes, 1.0),
    }
    histogram = {f"le_{text}": text for text in table.bounds}
    if table.buckets:
        histogram |= {"within": table.slow_above, "timed": _ALL}
    return MappedSource(
        name=PLAIN,
        component=tuple(name for name in table.component if name != node),
        fields=(
            *(MappedField(name, *counters) for name, counters in parts.items() if counters[0]),
            *(MappedField(name, (table.buckets,), le=text) for name, text in histogram.items()),
        ),
        node=node,
        select=table.select,
        labels=table.group_by,
        info=table.info,
        info_labels=table.info_labels,
        comparison=table.name,
    )


def shipped_names() -> tuple[str, ...]:
    """Names of the maps that come with Laggard."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def load_map(name: str) -> CompareMap:
    """The shipped map `name`, or the one in the file of that path. Raises ConfigError."""
    if name in shipped_names():
        return config.load(CompareMap, SHIPPED / f"{name}.toml")
    path = Path(name)
    if not path.exists():
        known = ", ".join(shipped_names())
        raise ConfigError("", [f"--map: {name}: no such file, and none of the shipped maps: {known}"])
    return config.load(CompareMap, path)
