"""One run of an experiment: a healthy phase, a fault, and all alarms that the aggregator raises meanwhile."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.testbed.gluster.cluster import Cluster
from bench.testbed.gluster.evidence import evidence
from bench.testbed.gluster.experiments import CONTROL, EXPERIMENTS, Target, source_of
from bench.testbed.gluster.load import Files, load
from bench.testbed.gluster.site import Detection, site
from bench.testbed.site import Site

SLACK_SECONDS = 60.0
SETTLE_SECONDS = 2.0
"""How long after the beginning of a phase its figures begin."""


@dataclass(frozen=True, slots=True)
class Phases:
    """How long the healthy phase and the fault last; `until_found`: the fault ends with the right alarm."""

    healthy_seconds: float
    fault_seconds: float
    until_found: bool


class Watch:
    """All alarms of a run, by group, component and metric.

    `seen`: when each was first there (epoch s) and its entry as it was last seen, with the `raised_at` of the
    first: an alarm that was cleared and raised again counts from its first time. `located`: the
    evidence of the causes of the alarms that stood last, by level and component.
    """

    def __init__(self, there: Site) -> None:
        self._there = there
        self.seen: dict[tuple[str, str, str], tuple[float, dict[str, Any]]] = {}
        self.located: dict[tuple[str, str], str] = {}

    def during(self, seconds: float, enough: Callable[[dict[str, Any]], bool]) -> None:
        """Look every second for `seconds`, or until an alarm is `enough`. Raises TestbedError."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._there.check()
            alarms = [entry for entry in self._there.stragglers() if entry["alarm"]]
            self.located = {
                (entry["located_level"], entry["located_component"]): entry["evidence"]
                for entry in alarms
                if entry["located_level"]
            }
            for entry in alarms:
                key = (entry["group"], entry["component"], entry["metric"])
                first, earlier = self.seen.get(key, (time.time(), entry))
                self.seen[key] = (first, entry | {"raised_at": earlier["raised_at"]})
                if enough(entry):
                    return
            time.sleep(max(0.0, min(1.0, end - time.monotonic())))


def run_once(
    name: str,
    made: Cluster,
    files: Files,
    target: Target,
    phases: Phases,
    detection: Detection,
    scratch: Path,
) -> dict[str, Any]:
    """Return what came of one run of experiment `name`, as plain data. Raises TestbedError."""
    experiment = EXPERIMENTS[name]
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=scratch) as temporary:
        folder = Path(temporary)
        lasts = phases.healthy_seconds + phases.fault_seconds + SLACK_SECONDS
        with site(made, detection, folder) as there, load(files, experiment.jobs, folder, lasts):
            watch = Watch(there)
            began = time.time()
            watch.during(phases.healthy_seconds, lambda _: False)
            with experiment.apply(made, target):
                start = time.time()
                watch.during(
                    phases.fault_seconds,
                    lambda alarm: phases.until_found and experiment.right(target, alarm),
                )
                end, located = time.time(), dict(watch.located)
        figures = {
            phase: evidence(there.archive, made, target, experiment.whole_server, first, last)
            for phase, first, last in (
                ("healthy", began + SETTLE_SECONDS, start),
                ("fault", start + SETTLE_SECONDS, end),
            )
        }
    alarms: dict[str, list[dict[str, Any]]] = {"right": [], "explained": [], "false": []}
    for seen, entry in watch.seen.values():
        told = asdict(_told(entry, seen - start))
        if seen >= start and experiment.right(target, entry):
            alarms["right"].append(told)
        elif seen >= start and experiment.explained(target, entry):
            alarms["explained"].append(told)
        else:
            alarms["false"].append(told)
    return {
        "run": name,
        "fault": experiment.fault,
        "target": experiment.place(target),
        "healthy_seconds": round(start - began, 1),
        "fault_seconds": round(end - start, 1),
        "as_it_should": not alarms["false"] and bool(alarms["right"]) == (name != CONTROL),
        "alarms": alarms,
        "located": [
            {"level": level, "component": component, "evidence": said}
            for (level, component), said in sorted(located.items())
        ],
        "located_right": (set(located) <= experiment.causes(target)) and bool(located) == (name != CONTROL),
        "figures": figures,
    }


@dataclass(frozen=True, slots=True)
class _Told:
    """An alarm, as of when it was last seen. `delay_seconds`: first seen so long after the fault began."""

    component: str
    level: str
    source: str
    metric: str
    severity: float
    observed: float | None
    reference: float | None
    unit: str
    delay_seconds: float


def _told(entry: dict[str, Any], delay: float) -> _Told:
    return _Told(
        component=entry["component"],
        level=entry["level"],
        source=source_of(entry),
        metric=entry["metric"],
        severity=entry["worst_severity"],
        observed=entry["observed"],
        reference=entry["reference"],
        unit=entry["unit"],
        delay_seconds=round(delay, 1),
    )
