"""Runs: without a fault to train on, and with one, and what the aggregator and `laggard diagnose` say."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.testbed.gluster.experiments import source_of
from bench.testbed.gluster.watch import Phases, Watch
from bench.testbed.hotdep.experiments import CONTROL, EXPERIMENTS
from bench.testbed.hotdep.peers import Peer, Service
from bench.testbed.hotdep.site import Windows, diagnose, site, train

SETTLE_SECONDS = 2.0
UNSEEN_SECONDS = 20.0
"""Alarms of windows that ended so shortly before the last look may be in the archive alone."""


def train_once(made: Service, windows: Windows, seconds: float, thresholds: Path, scratch: Path) -> None:
    """Write thresholds from a run of `seconds` without a fault. Raises TestbedError."""
    with tempfile.TemporaryDirectory(prefix="train-", dir=scratch) as temporary:
        with site(made, windows, None, Path(temporary)) as there:
            Watch(there).during(seconds, lambda _: False)
            made.check()
        train(there.archive, thresholds)


def run_once(
    name: str,
    made: Service,
    peer: Peer,
    phases: Phases,
    windows: Windows,
    thresholds: Path | None,
    scratch: Path,
) -> dict[str, Any]:
    """Return what came of one run of experiment `name`, as plain data. Raises TestbedError.

    Without `thresholds` functions are compared by their shares.
    """
    experiment = EXPERIMENTS[name]

    def enough(alarm: Mapping[str, Any]) -> bool:
        return phases.until_found and experiment.right(peer, alarm) and experiment.named(alarm)

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{name}-", dir=scratch)))
        with site(made, windows, thresholds, folder) as there:
            watch = Watch(there)
            began = time.time()
            watch.during(phases.healthy_seconds, lambda _: False)
            with experiment.apply(peer):
                start = time.time()
                watch.during(phases.fault_seconds, enough)
                end = time.time()
            made.check()
        afterwards = diagnose(there.archive)
    alarms: dict[str, list[dict[str, Any]]] = {"right": [], "explained": [], "false": []}
    for seen, entry in watch.seen.values():
        kind = "false"
        if seen >= start and experiment.explained(peer, entry):
            kind = "right" if experiment.right(peer, entry) else "explained"
        alarms[kind].append(_told(entry, seen - start))
    named = [experiment.named(alarm) for alarm in alarms["right"]]
    same = agree([entry for _, entry in watch.seen.values()], afterwards, end - UNSEEN_SECONDS)
    return {
        "run": name,
        "fault": experiment.fault,
        "target": "" if name == CONTROL else peer.name,
        "healthy_seconds": round(start - began, 1),
        "fault_seconds": round(end - start, 1),
        "stripe_ms": {
            phase: round(made.stripe_ms(first, last), 2)
            for phase, first, last in (
                ("healthy", began, start),
                ("fault", start + SETTLE_SECONDS, end),
            )
        },
        "alarms": alarms,
        "diagnose": [
            [found["group"], found["component"], found["first_alarm"], *found["metrics"]]
            for found in afterwards
        ],
        "diagnose_agrees": same,
        "as_it_should": not alarms["false"] and same and (name == CONTROL or any(named)),
    }


def agree(
    live: Sequence[Mapping[str, Any]], afterwards: Sequence[Mapping[str, Any]], looked_until: float
) -> bool:
    """Return whether alarms of the aggregator and of `laggard diagnose` are of the same components and times.

    Those that diagnose found in windows after `looked_until` (epoch s) need not be among the aggregator's; it
    tells when a component had its first alarm, whichever the metric.
    """
    raised: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for entry in live:
        raised.setdefault((entry["group"], entry["component"]), []).append(entry)
    found = {(record["group"], record["component"]): record for record in afterwards}
    late = [key for key, record in found.items() if record["first_alarm"] >= looked_until]
    return found.keys() - late <= raised.keys() <= found.keys() and all(
        min(entry["raised_at"] for entry in entries) == found[key]["first_alarm"]
        and {entry["metric"] for entry in entries} <= set(found[key]["metrics"])
        for key, entries in raised.items()
    )


def _told(entry: Mapping[str, Any], delay: float) -> dict[str, Any]:
    """Return an alarm as it was last seen. `delay_seconds`: first seen so long after the fault began."""
    kept = (
        "component",
        "level",
        "metric",
        "raised_at",
        "observed",
        "reference",
        "unit",
        "worst_severity",
        "causes",
    )
    told = {"source": source_of(entry), "delay_seconds": round(delay, 1)}
    return told | {key: entry[key] for key in kept}
