"""Findings as JSON records, one object per line; docs/diagnose.md documents the keys."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from laggard_aggregator.alarms.alarms import Key
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.detect.interface import DutyCycle, stop_text
from laggard_aggregator.files.json_line import line, six_digits
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.offline.findings import ConfirmedSplit, Finding, UnjudgedWindows

__all__ = [
    "causes_json",
    "component_record",
    "day_record",
    "line",
    "not_judged_record",
    "split_record",
    "window_records",
]


def window_records(judged: Judgement) -> Iterator[dict[str, Any]]:
    """Yields one record for each component judged in this window."""
    verdicts = judged.verdicts
    for c in np.flatnonzero(verdicts.judged):
        causes = causes_json(verdicts.causes.get(judged.components[c], ()))
        yield {
            "record": "window",
            "group": judged.group,
            "component": judged.components[c],
            "level": judged.levels[c],
            "metric": judged.metric,
            "start": judged.start,
            "end": judged.end,
            "anomalous": bool(verdicts.anomalous[c]),
            "score": six_digits(verdicts.score[c]),
            "severity": six_digits(verdicts.severity[c]),
            **({"causes": causes} if causes else {}),
            **_duty_cycle(verdicts.duty_cycles.get(judged.components[c])),
            **({"stops": stops} if (stops := stop_text(verdicts, judged.components[c])) else {}),
        }


def day_record(finding: Finding) -> dict[str, Any]:
    """The record of one component on one day."""
    return {"record": "day"} | _values(finding, "group component day straggler score severity")


def component_record(finding: Finding, shown: Mapping[str, str], topology: Topology) -> dict[str, Any]:
    """The record of one component over the whole run.

    `shown`: current names, where they differ. `topology` gives the narrowest parent.
    """
    parents_of = topology.parents_of_node if finding.level == "node" else topology.parents_of
    return {
        "record": "component",
        **_values(finding, "group component"),
        "name": shown.get(finding.component, finding.component),
        "level": finding.level,
        "parent": next(iter(parents_of(finding.component).values()), None),
        **_values(finding, "straggler score severity first_alarm anomalous_windows windows persistence"),
        "metrics": list(finding.metrics),
        "causes": {metric: causes_json(causes) for metric, causes in finding.causes.items()},
        **({"stops": finding.stops} if finding.stops else {}),
    }


def split_record(key: Key, confirmed: ConfirmedSplit) -> dict[str, Any]:
    """The record of a group that fell into two sides; `key` names the slower one."""
    group, component, metric = key
    split = asdict(confirmed.split)
    figures = {name: six_digits(split[name]) for name in ("median", "other_median", "factor")}
    names = {"record": "split", "group": group, "component": component, "metric": metric}
    return names | split | figures | {"since": confirmed.since, "text": confirmed.split.text()}


def not_judged_record(windows: UnjudgedWindows) -> dict[str, Any]:
    """The record of windows of a group that were not judged."""
    return {"record": "not judged", **asdict(windows)}


def _duty_cycle(cycle: DutyCycle | None) -> dict[str, Any]:
    if cycle is None:
        return {}
    return {"slow_share": six_digits(cycle.share), "slow_severity": six_digits(cycle.severity)}


def _values(finding: Finding, names: str) -> dict[str, Any]:
    values = {name: getattr(finding, name) for name in names.split()}
    return values | {name: six_digits(values[name]) for name in ("score", "severity") if name in values}


def causes_json(causes: Sequence[tuple[str, float]]) -> list[dict[str, Any]]:
    """Functions or metrics in which a component differs, largest first."""
    return [{"name": name, "amount": six_digits(amount)} for name, amount in causes]
