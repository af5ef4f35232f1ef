"""The columns of every table in the archive; docs/archive.md explains them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa

from laggard_aggregator.alarms.alarms import Alarm, AlarmEvent
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.groups.membership import ConfiguredMembership, PeerGroup
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.log.entries import WindowClose
from laggard_common.wire.schema import Field, FieldType

TIME: Final = pa.timestamp("ns", tz="UTC")
TEXT: Final = pa.dictionary(pa.int32(), pa.string())

_CAUSES: Final = pa.list_(pa.struct([("name", pa.string()), ("amount", pa.float64())]))
_FIELD: Final = pa.struct([(name, pa.string()) for name in ("name", "kind", "unit", "type")])
_LABELS: Final = pa.map_(pa.string(), pa.string())
_COMPONENT: Final = pa.struct([("id", pa.string()), ("name", pa.string()), ("labels", _LABELS)])


def _columns(*columns: tuple[pa.DataType, str], nullable: bool = False) -> list[pa.Field]:
    """Columns in their order, each type with the names of the columns that have it."""
    return [pa.field(name, kind, nullable) for kind, names in columns for name in names.split()]


_KEY: Final = _columns((TIME, "run"), (pa.int64(), "ordinal"))
_JUDGED: Final = [*_KEY, *_columns((TEXT, "group metric"), (pa.float64(), "start end"))]

COUNTERS: Final = pa.schema(
    [
        *_KEY,
        *_columns(
            (TEXT, "node role stream"),
            (pa.uint64(), "seq"),
            (pa.uint32(), "epoch width place"),
            (TEXT, "component name"),
            (TIME, "tick"),
            (pa.int64(), "read_offset_ns"),
            (TIME, "received"),
            (pa.bool_(), "late idle"),
        ),
    ]
)
"""Leading columns of every counter table."""

MAX_SOURCE_FIELDS: Final = 2048
"""Fields of one source at a site: columns of its table beside COUNTERS."""
MAX_COLUMNS: Final = len(COUNTERS) + MAX_SOURCE_FIELDS

SCHEMAS: Final = pa.schema(
    [
        *_KEY,
        *_columns(
            (pa.string(), "node role stream"),
            (pa.uint32(), "epoch"),
            (pa.int64(), "interval_ns"),
            (pa.uint32(), "batch_ticks"),
            (pa.list_(_FIELD), "fields"),
            (pa.list_(_COMPONENT), "components"),
        ),
    ]
)

CLOSES: Final = pa.schema(
    [
        *_KEY,
        *_columns(
            (pa.string(), "group"),
            (pa.float64(), "start end closed_at"),
            (pa.list_(pa.string()), "drained afresh"),
        ),
    ]
)

VERDICTS: Final = pa.schema(
    [
        *_JUDGED,
        *_columns((TEXT, "component level"), (pa.bool_(), "anomalous")),
        *_columns((pa.float64(), "score severity observed reference"), nullable=True),
        *_columns((pa.int64(), "persistence"), (pa.bool_(), "straggler")),
        *_columns((pa.float64(), "since"), (_CAUSES, "causes"), nullable=True),
    ]
)

WINDOWS: Final = pa.schema(
    [
        *_JUDGED,
        *_columns(
            (pa.int64(), "components judged anomalous stragglers"), (TEXT, "note"), (pa.int64(), "undecided")
        ),
    ]
)

ALARMS: Final = pa.schema(
    [
        *_JUDGED,
        *_columns(
            (TEXT, "transition component level"),
            (pa.float64(), "at since score severity worst_severity observed reference"),
        ),
        pa.field("causes", _CAUSES),
    ]
)

OF_FUNCTIONS: Final = "functions"
"""The `source` of the row with the settings of automatic groups compared by functions."""

GROUPS: Final = pa.schema(
    [
        *_KEY,
        *_columns(
            (pa.int64(), "place"),
            (pa.string(), "name source role components"),
            (pa.list_(pa.string()), "metrics"),
            (pa.bool_(), "automatic"),
            (pa.string(), "detect topology"),
            (pa.float64(), "lateness_seconds after_seconds"),
        ),
    ]
)

_RESERVED = frozenset(name.casefold() for name in (*COUNTERS.names, "kind", "source", "date", "site"))


def column_of(field: str) -> str:
    """Column name of a counter's field: its own name, unless that is reserved or looks reserved."""
    return f"field.{field}" if field.casefold() in _RESERVED or field.startswith("field.") else field


def double_column_of(column: str) -> str:
    """Name of the f64 column in a table whose `column` has integers of the same field."""
    return f"field.f64.{column}"  # no field's own column: "f64..." is not reserved


FieldKey = tuple[str, bool]
"""A field's name, and whether it is f64: nodes may differ on it, and each has a column."""


def field_key(field: Field) -> FieldKey:
    """Tells the columns of a source apart."""
    return field.name, field.type is FieldType.F64


Row = Mapping[str, Any]

_OF_WINDOW: Final = ("group", "metric", "start", "end")
_OF_ALARM: Final = tuple(name for name in ALARMS.names if name in {field.name for field in fields(Alarm)})


def schema_row(taken: Batch) -> Row:
    """Row of a schema, which names a batch's counters."""
    schema = taken.schema
    return {
        "ordinal": taken.lsn,
        "node": schema.node,
        "role": taken.role,
        "stream": schema.stream.hex(),
        "epoch": schema.epoch,
        "interval_ns": schema.interval_ns,
        "batch_ticks": schema.batch_ticks,
        "fields": [
            {"name": f.name, "kind": f.kind.name.lower(), "unit": f.unit, "type": f.type.name.lower()}
            for f in schema.fields
        ],
        "components": [{"id": c.id, "name": c.name, "labels": list(c.labels)} for c in schema.components],
    }


def close_row(close: WindowClose) -> Row:
    """Row of a window close."""
    row = asdict(close)
    return {"ordinal": row.pop("lsn"), "afresh": row.pop("restart"), **row}


def group_rows(
    membership: ConfiguredMembership, topology: Topology, lateness_seconds: float, after_seconds: float
) -> list[Row]:
    """The configured groups in their order, and last, without a name, how automatic ones are judged.

    The last of them are those that are compared by functions.
    """
    automatic = PeerGroup("", "", "", (), membership.default, automatic=True)
    of_functions = PeerGroup("", OF_FUNCTIONS, "", (), membership.functions, automatic=True)
    branches = json.dumps([asdict(branch) for branch in topology.branches])
    named = [(rule.group, rule.components.pattern) for rule in membership.rules]
    return [
        {
            "ordinal": -1,
            "place": place,
            "name": group.name,
            "source": group.source,
            "role": group.role,
            "components": pattern,
            "metrics": list(group.metrics),
            "automatic": group.automatic,
            "detect": json.dumps(group.detect.record(), default=dict),
            "topology": branches,
            "lateness_seconds": lateness_seconds,
            "after_seconds": after_seconds,
        }
        for place, (group, pattern) in enumerate([*named, (automatic, ""), (of_functions, "")])
    ]


def window_row(ordinal: int, judged: Judgement) -> Row:
    """Summary row of one group and metric in one window."""
    verdicts = judged.verdicts
    return {
        **_judged(ordinal, judged),
        "components": len(judged.components),
        "judged": int(verdicts.judged.sum()),
        "anomalous": int((verdicts.judged & verdicts.anomalous).sum()),
        "stragglers": int(judged.straggler.sum()),
        "note": verdicts.note,
        "undecided": verdicts.undecided,
    }


def alarm_rows(
    ordinal: int, events: Iterable[AlarmEvent], window: tuple[float, float] | None = None
) -> list[Row]:
    """Rows of alarms that `window` (start and end) raised or cleared; without one, both are the event's."""
    rows: list[Row] = []
    for event in events:
        start, end = window or (event.at, event.at)
        row = {name: getattr(event.alarm, name) for name in _OF_ALARM}
        causes = _causes(event.alarm.causes)
        row |= {"ordinal": ordinal, "start": start, "end": end, "causes": causes}
        rows.append({**row, "transition": event.kind, "at": event.at})
    return rows


def verdict_table(run_ns: int, ordinal: int, judged: Judgement) -> pa.Table | None:
    """Table of the components that are anomalous or have a persistence above 0; None without any."""
    verdicts = judged.verdicts
    at = np.flatnonzero((verdicts.judged & verdicts.anomalous) | (judged.persistence > 0))
    if not at.size:
        return None
    same = {**_judged(ordinal, judged), "run": run_ns}
    columns: dict[str, Any] = {name: [value] * at.size for name, value in same.items()}
    columns |= {
        "component": [judged.components[c] for c in at],
        "level": [judged.levels[c] for c in at],
        "causes": [_causes(verdicts.causes.get(judged.components[c], ())) for c in at],
    }
    for name in ("anomalous", "score", "severity", "observed", "reference"):
        columns[name] = getattr(verdicts, name)[at]
    for name in ("persistence", "straggler", "since"):
        columns[name] = getattr(judged, name)[at]
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in VERDICTS]
    return pa.table(arrays, schema=VERDICTS)


def table_of(run_ns: int, rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """`rows` as a table."""
    return pa.Table.from_pylist([{"run": run_ns, **row} for row in rows], schema=schema)


def _causes(causes: Sequence[tuple[str, float]]) -> list[dict[str, Any]]:
    return [{"name": name, "amount": amount} for name, amount in causes]


def _judged(ordinal: int, judged: Judgement) -> dict[str, Any]:
    return {"ordinal": ordinal} | {name: getattr(judged, name) for name in _OF_WINDOW}
