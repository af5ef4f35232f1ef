"""Verdicts of the offline engine on a series: in this process, or by `laggard diagnose` on a CSV."""

import csv
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.accuracy.load_grid.scenario import Windows
from bench.accuracy.load_grid.series import EPOCH, Series
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.groups.topology import Branch, Topology
from laggard_aggregator.offline.csv_input import ONE_GROUP
from laggard_aggregator.offline.findings import Findings
from laggard_aggregator.offline.regrid import Rows, binned
from laggard_aggregator.offline.run import run_grids
from laggard_aggregator.offline.sample_grid import NS

METRIC = "latency"


@dataclass(frozen=True, slots=True)
class Event:
    """An alarm of `component` raised or cleared `at` seconds since EPOCH. `level`: component, node, ..."""

    component: str
    level: str
    kind: str
    at: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The run's records: `stragglers` by name and level, and the `events` of alarms in order of time.

    `notes`: windows that were not judged as a group, by reason.
    """

    stragglers: Mapping[str, str]
    events: tuple[Event, ...] = ()
    notes: Mapping[str, int] = field(default_factory=dict)


def judgements(series: Series, windows: Windows, loads: Sequence[str]) -> tuple[list[Judgement], Findings]:
    """The judgements of all windows and their findings, as `laggard diagnose` makes them.

    `loads`: names of those that the detector gets; none is `laggard diagnose` without `--load`.
    """
    settings = settings_of(windows)
    grid = binned(rows_of(series, loads), round(windows.interval_seconds * NS), windows.shift)
    run = run_grids([grid], settings, topology=topology_of(series))
    findings = Findings(run.confirm)
    judged = []
    for judgement in run.judgements:
        findings.add(judgement)
        judged.append(judgement)
    return judged, findings


def judge(series: Series, windows: Windows, loads: Sequence[str]) -> Verdict:
    """The verdict of the offline engine in this process."""
    judged, findings = judgements(series, windows, loads)
    events = []
    notes: dict[str, int] = {}
    for judgement in judged:
        events += [
            Event(t.alarm.component, t.alarm.level, t.kind, t.at - EPOCH) for t in judgement.transitions
        ]
        if judgement.verdicts.note:
            notes[judgement.verdicts.note] = notes.get(judgement.verdicts.note, 0) + 1
    stragglers = {finding.component: finding.level for finding in findings.components() if finding.straggler}
    return Verdict(stragglers, tuple(events), notes)


def settings_of(windows: Windows) -> DetectSettings:
    """The defaults at that interval and those windows."""
    return DetectSettings(
        interval_seconds=windows.interval_seconds,
        window_samples=windows.samples,
        shift_samples=windows.shift,
    )


def rows_of(series: Series, loads: Sequence[str]) -> Rows:
    """The samples as the reader of CSV gives them."""
    members, intervals = series.latency.shape
    return Rows(
        group=ONE_GROUP,
        components=series.components,
        component=np.repeat(np.arange(members, dtype=np.int32), intervals),
        time_ns=np.tile(np.round(series.times * NS).astype(np.int64), members),
        metrics={METRIC: series.latency.ravel()},
        load={name: series.load[name].ravel() for name in loads},
        weight="operations" if "operations" in loads else None,
    )


def topology_of(series: Series) -> Topology:
    """The attributes that components share, as `--topology` gives them."""
    return Topology(
        [
            Branch(re.escape(component), {"node" if name == "server" else name: value})
            for name, values in series.attributes.items()
            for component, value in values.items()
        ]
    )


def write_csv(path: Path, series: Series) -> None:
    """Writes ts, disk_id, latency and operations, with as many digits as doubles have."""
    operations = series.load["operations"]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("ts", "disk_id", METRIC, "operations"))
        for t, at in enumerate(series.times.tolist()):
            for c, component in enumerate(series.components):
                writer.writerow(
                    (f"{at:g}" if at % 1 else int(at), component, series.latency[c, t], operations[c, t])
                )


def judge_by_command(series: Series, windows: Windows, directory: Path, *, with_load: bool) -> Verdict:
    """The verdict of `laggard diagnose`, with `--load operations` or without; only raised alarms are known.

    Raises CalledProcessError.
    """
    source, output = directory / "series.csv", directory / "records.jsonl"
    write_csv(source, series)
    command = [str(Path(sys.executable).with_name("laggard")), "diagnose", str(source)]
    options = ("--interval", windows.interval_seconds, "--window", windows.samples, "--shift", windows.shift)
    command += [*map(str, options), "--json", "-o", str(output)]
    subprocess.run(
        [*command, *(["--load", "operations"] if with_load else [])], check=True, capture_output=True
    )
    records = [json.loads(line) for line in output.read_text().splitlines()]
    components = [record for record in records if record["record"] == "component"]
    events = [
        Event(record["component"], record["level"], "raised", record["first_alarm"] - EPOCH)
        for record in components
        if record["first_alarm"] is not None
    ]
    events.sort(key=lambda event: event.at)
    return Verdict({r["component"]: r["level"] for r in components if r["straggler"]}, tuple(events))
