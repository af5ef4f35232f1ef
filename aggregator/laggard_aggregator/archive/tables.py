"""The columns of every table in the archive; docs/archive.md explains them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np
import pyarrow as pa

from laggard_aggregator.alarms.alarms import AlarmEvent, AlarmsCleared
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.groups.membership import ConfiguredMembership, PeerGroup
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.log.entries import WindowClose

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


Row = Mapping[str, Any]


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


def alarm_rows(ordinal: int, judged: Judgement) -> list[Row]:
    """Rows of the alarms that this window raised and cleared."""
    return [_alarm(_judged(ordinal, judged), transition) for transition in judged.transitions]


def cleared_rows(cleared: AlarmsCleared) -> list[Row]:
    """Rows of alarms cleared without a window; start and end are the time of clearing."""
    return [
        _alarm(
            {
                "ordinal": cleared.lsn,
                "group": transition.alarm.group,
                "metric": transition.alarm.metric,
                "start": transition.at,
                "end": transition.at,
            },
            transition,
        )
        for transition in cleared.transitions
    ]


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
        "anomalous": verdicts.anomalous[at],
        "score": verdicts.score[at],
        "severity": verdicts.severity[at],
        "observed": verdicts.observed[at],
        "reference": verdicts.reference[at],
        "persistence": judged.persistence[at],
        "straggler": judged.straggler[at],
        "since": judged.since[at],
        "causes": [_causes(verdicts.causes.get(judged.components[c], ())) for c in at],
    }
    schema = VERDICTS
    return pa.table(
        {each.name: pa.array(columns[each.name]).cast(each.type) for each in schema}, schema=schema
    )


def table_of(run_ns: int, rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """`rows` as a table."""
    return pa.Table.from_pylist([{"run": run_ns, **row} for row in rows], schema=schema)


def _causes(causes: Sequence[tuple[str, float]]) -> list[dict[str, Any]]:
    return [{"name": name, "amount": amount} for name, amount in causes]


def _alarm(of: Row, transition: AlarmEvent) -> Row:
    alarm = transition.alarm
    return {
        **of,
        "transition": transition.kind,
        "component": alarm.component,
        "level": alarm.level,
        "at": transition.at,
        "since": alarm.since,
        "score": alarm.score,
        "severity": alarm.severity,
        "worst_severity": alarm.worst_severity,
        "observed": alarm.observed,
        "reference": alarm.reference,
        "causes": _causes(alarm.causes),
    }


def _judged(ordinal: int, judged: Judgement) -> dict[str, Any]:
    return {
        "ordinal": ordinal,
        "group": judged.group,
        "metric": judged.metric,
        "start": judged.start,
        "end": judged.end,
    }
