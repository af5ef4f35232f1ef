"""The verdicts of `laggard diagnose`, held against the truth."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bench.accuracy.queues.case import SERVERS, QueueCase, WrittenCase

GRACE_S = 900
"""An alarm this long after a fault's end is still of the fault."""


class DiagnoseError(Exception):
    """`laggard diagnose` failed on a case's files."""


@dataclass(frozen=True, slots=True)
class QueueScore:
    """A case's outcome: `found` of `ill` (of a server or half, the one sentence about it), and false alarms.

    `delay_minutes` is from the fault's begin to the first right alarm, None without one. `healthy` are the
    members alarmed or named that are not ill, `wrong_groups` the sides or servers named that are not.
    `unjudged` counts members without a window.
    """

    case: QueueCase
    ill: int
    found: int
    delay_minutes: float | None
    healthy: tuple[str, ...]
    wrong_groups: tuple[str, ...]
    splits: tuple[str, ...]
    unjudged: int


def diagnose(files: tuple[Path, ...]) -> list[dict[str, Any]]:
    """Returns the records of `laggard diagnose --json`; raises DiagnoseError if it fails."""
    command = [str(Path(sys.executable).with_name("laggard")), "diagnose", "--json", *map(str, files)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise DiagnoseError(f"laggard diagnose ended with {run.returncode}: {run.stderr.strip()}")
    return [cast("dict[str, Any]", json.loads(line)) for line in run.stdout.splitlines()]


def score(case: QueueCase, truth: WrittenCase, records: list[dict[str, Any]]) -> QueueScore:
    """Returns the outcome of one case."""
    members = [
        record for record in records if record["record"] == "component" and record["level"] == "component"
    ]
    groups = [
        record for record in records if record["record"] == "component" and record["level"] != "component"
    ]
    ill = [record for record in members if record["component"] in truth.ill]
    right_groups = [record for record in groups if _server(record) in truth.ill_servers]
    of_group = case.fault in SERVERS
    alarms = list(_alarms_in_time(right_groups if of_group else ill, truth))
    return QueueScore(
        case,
        ill=1 if of_group else len(truth.ill),
        found=min(len(alarms), 1) if of_group else len(alarms),
        delay_minutes=min(((alarm - truth.begin_s) / 60 for alarm in alarms), default=None),
        healthy=tuple(
            record["component"]
            for record in members
            if record["component"] not in truth.ill and _named(record)
        ),
        wrong_groups=tuple(
            record["component"]
            for record in groups
            if _named(record) and not (of_group and _server(record) in truth.ill_servers)
        ),
        splits=tuple(str(record["text"]) for record in records if record["record"] == "split"),
        unjudged=sum(record["windows"] == 0 for record in members),
    )


def _named(record: dict[str, Any]) -> bool:
    return bool(record["straggler"]) or record["first_alarm"] is not None


def _server(record: dict[str, Any]) -> str:
    """Returns the server that a record of a group's side or of a server is about."""
    return str(record["component"]).removeprefix("all of ")


def _alarms_in_time(records: list[dict[str, Any]], truth: WrittenCase) -> Iterator[float]:
    """Yields the first alarms within the fault's time, epoch seconds."""
    for record in records:
        alarm = record["first_alarm"]
        if alarm is not None and truth.begin_s <= alarm <= truth.end_s + GRACE_S:
            yield float(alarm)
