"""The columns of every table in the archive; docs/archive.md explains them."""

from typing import Final

import pyarrow as pa

TIME: Final = pa.timestamp("ns", tz="UTC")
TEXT: Final = pa.dictionary(pa.int32(), pa.string())

RUN: Final = pa.field("run", TIME, nullable=False)
ORDINAL: Final = pa.field("ordinal", pa.int64(), nullable=False)

COUNTERS: Final = pa.schema(
    [
        RUN,
        ORDINAL,
        pa.field("node", TEXT, nullable=False),
        pa.field("role", TEXT, nullable=False),
        pa.field("stream", TEXT, nullable=False),
        pa.field("seq", pa.uint64(), nullable=False),
        pa.field("epoch", pa.uint32(), nullable=False),
        pa.field("width", pa.uint32(), nullable=False),
        pa.field("place", pa.uint32(), nullable=False),
        pa.field("component", TEXT, nullable=False),
        pa.field("name", TEXT, nullable=False),
        pa.field("tick", TIME, nullable=False),
        pa.field("read_offset_ns", pa.int64(), nullable=False),
        pa.field("received", TIME, nullable=False),
        pa.field("late", pa.bool_(), nullable=False),
        pa.field("idle", pa.bool_(), nullable=False),
    ]
)
"""Leading columns of every counter table."""

_FIELD = pa.struct(
    [("name", pa.string()), ("kind", pa.string()), ("unit", pa.string()), ("type", pa.string())]
)
_COMPONENT = pa.struct(
    [("id", pa.string()), ("name", pa.string()), ("labels", pa.map_(pa.string(), pa.string()))]
)

SCHEMAS: Final = pa.schema(
    [
        RUN,
        ORDINAL,
        pa.field("node", pa.string(), nullable=False),
        pa.field("role", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("epoch", pa.uint32(), nullable=False),
        pa.field("interval_ns", pa.int64(), nullable=False),
        pa.field("batch_ticks", pa.uint32(), nullable=False),
        pa.field("fields", pa.list_(_FIELD), nullable=False),
        pa.field("components", pa.list_(_COMPONENT), nullable=False),
    ]
)

CLOSES: Final = pa.schema(
    [
        RUN,
        ORDINAL,
        pa.field("group", pa.string(), nullable=False),
        pa.field("start", pa.float64(), nullable=False),
        pa.field("end", pa.float64(), nullable=False),
        pa.field("closed_at", pa.float64(), nullable=False),
        pa.field("drained", pa.list_(pa.string()), nullable=False),
        pa.field("afresh", pa.list_(pa.string()), nullable=False),
    ]
)

_JUDGED = [
    RUN,
    ORDINAL,
    pa.field("group", TEXT, nullable=False),
    pa.field("metric", TEXT, nullable=False),
    pa.field("start", pa.float64(), nullable=False),
    pa.field("end", pa.float64(), nullable=False),
]

_CAUSES = pa.list_(pa.struct([("name", pa.string()), ("amount", pa.float64())]))

VERDICTS: Final = pa.schema(
    [
        *_JUDGED,
        pa.field("component", TEXT, nullable=False),
        pa.field("level", TEXT, nullable=False),
        pa.field("anomalous", pa.bool_(), nullable=False),
        pa.field("score", pa.float64()),
        pa.field("severity", pa.float64()),
        pa.field("observed", pa.float64()),
        pa.field("reference", pa.float64()),
        pa.field("persistence", pa.int64(), nullable=False),
        pa.field("straggler", pa.bool_(), nullable=False),
        pa.field("since", pa.float64()),
        pa.field("causes", _CAUSES),
    ]
)

WINDOWS: Final = pa.schema(
    [
        *_JUDGED,
        pa.field("components", pa.int64(), nullable=False),
        pa.field("judged", pa.int64(), nullable=False),
        pa.field("anomalous", pa.int64(), nullable=False),
        pa.field("stragglers", pa.int64(), nullable=False),
        pa.field("note", TEXT, nullable=False),
        pa.field("undecided", pa.int64(), nullable=False),
    ]
)

ALARMS: Final = pa.schema(
    [
        *_JUDGED,
        pa.field("transition", TEXT, nullable=False),
        pa.field("component", TEXT, nullable=False),
        pa.field("level", TEXT, nullable=False),
        pa.field("at", pa.float64(), nullable=False),
        pa.field("since", pa.float64(), nullable=False),
        pa.field("score", pa.float64(), nullable=False),
        pa.field("severity", pa.float64(), nullable=False),
        pa.field("worst_severity", pa.float64(), nullable=False),
        pa.field("observed", pa.float64(), nullable=False),
        pa.field("reference", pa.float64(), nullable=False),
        pa.field("causes", _CAUSES),
    ]
)

OF_FUNCTIONS: Final = "functions"
"""The `source` of the row with the settings of automatic groups compared by functions."""

GROUPS: Final = pa.schema(
    [
        RUN,
        ORDINAL,
        pa.field("place", pa.int64(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("role", pa.string(), nullable=False),
        pa.field("components", pa.string(), nullable=False),
        pa.field("metrics", pa.list_(pa.string()), nullable=False),
        pa.field("automatic", pa.bool_(), nullable=False),
        pa.field("detect", pa.string(), nullable=False),
        pa.field("topology", pa.string(), nullable=False),
        pa.field("lateness_seconds", pa.float64(), nullable=False),
        pa.field("after_seconds", pa.float64(), nullable=False),
    ]
)

_RESERVED = frozenset(name.casefold() for name in (*COUNTERS.names, "kind", "source", "date", "site"))


def column_of(field: str) -> str:
    """Column name of a counter's field: its own name, unless that is reserved or looks reserved."""
    return f"field.{field}" if field.casefold() in _RESERVED or field.startswith("field.") else field


def field_of(column: str) -> str:
    """Field name of a column; the inverse of `column_of`."""
    return column.removeprefix("field.")
