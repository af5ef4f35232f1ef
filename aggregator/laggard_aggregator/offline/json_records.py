"""Findings as JSON records, one object per line; docs/diagnose.md documents the keys."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.offline.findings import Finding


def window_records(judged: Judgement) -> Iterator[dict[str, Any]]:
    """Yields one record for each component judged in this window."""
    verdicts = judged.verdicts
    for c in np.flatnonzero(verdicts.judged):
        yield {
            "record": "window",
            "group": judged.group,
            "component": judged.components[c],
            "level": judged.levels[c],
            "metric": judged.metric,
            "start": judged.start,
            "end": judged.end,
            "anomalous": bool(verdicts.anomalous[c]),
            "score": _number(verdicts.score[c]),
            "severity": _number(verdicts.severity[c]),
            **_causes(verdicts.causes.get(judged.components[c], ())),
        }


def day_record(finding: Finding) -> dict[str, Any]:
    """The record of one component on one day."""
    return {
        "record": "day",
        "group": finding.group,
        "component": finding.component,
        "day": finding.day,
        "straggler": finding.straggler,
        "score": _number(finding.score),
        "severity": _number(finding.severity),
    }


def component_record(finding: Finding, shown: Mapping[str, str], topology: Topology) -> dict[str, Any]:
    """The record of one component over the whole run.

    `shown`: current names, where they differ. `topology` gives the narrowest parent.
    """
    of = topology.parents_of_node if finding.level == "node" else topology.parents_of
    parents = of(finding.component)
    return {
        "record": "component",
        "group": finding.group,
        "component": finding.component,
        "name": shown.get(finding.component, finding.component),
        "level": finding.level,
        "parent": next(iter(parents.values()), None),
        "straggler": finding.straggler,
        "score": _number(finding.score),
        "severity": _number(finding.severity),
        "first_alarm": finding.first_alarm,
        "anomalous_windows": finding.anomalous_windows,
        "windows": finding.windows,
        "persistence": finding.persistence,
        "metrics": list(finding.metrics),
        "causes": {metric: causes_json(causes) for metric, causes in finding.causes.items()},
    }


def causes_json(causes: Sequence[tuple[str, float]]) -> list[dict[str, Any]]:
    """Functions or metrics in which a component differs, largest first."""
    return [{"name": name, "amount": _number(amount)} for name, amount in causes]


def _causes(causes: Sequence[tuple[str, float]]) -> dict[str, Any]:
    return {"causes": causes_json(causes)} if causes else {}


def line(record: dict[str, Any]) -> str:
    """The record as one line of JSON."""
    return json.dumps(record, allow_nan=False, ensure_ascii=False) + "\n"


def _number(value: float) -> float | None:
    """Rounds to six significant digits; None for values that JSON lacks (NaN, infinity)."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
