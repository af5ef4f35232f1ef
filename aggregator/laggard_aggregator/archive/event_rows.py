"""Tables of the aggregator's own records: schemas, groups, window closes, verdicts, windows, alarms."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from laggard_aggregator.alarms.alarms import AlarmEvent, AlarmsCleared
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.archive import tables
from laggard_aggregator.groups.membership import ConfiguredMembership, PeerGroup
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.log.entries import WindowClose

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
    of_functions = PeerGroup("", tables.OF_FUNCTIONS, "", (), membership.functions, automatic=True)
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
            "detect": json.dumps(asdict(group.detect), default=dict),
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


def ended_rows(ended: AlarmsCleared) -> list[Row]:
    """Rows of alarms cleared without a window; start and end are the time of clearing."""
    return [
        _alarm(
            {
                "ordinal": ended.lsn,
                "group": transition.alarm.group,
                "metric": transition.alarm.metric,
                "start": transition.at,
                "end": transition.at,
            },
            transition,
        )
        for transition in ended.transitions
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
    schema = tables.VERDICTS
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
