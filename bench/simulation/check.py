"""The invariants of `docs/reliability.md`, checked on the record of a simulation.

- *lost*: every sample is in the archive, or lost with an agent's unfinished batch, or counted.
- *twice*: no sample is there twice, and no window close.
- *values*: every row has the numbers that were read (`archived`).
- *state*: what was durable before a restart is there after it (`record`).
- *verdicts*: the published judgements are, to the bit, those of a machine that was never restarted and got
  the same inputs; with harmless faults also those of a run without faults.
- *alarms*: raised once and cleared once for each episode, on the slow disk alone, and not cleared while it is
  slow and its data arrive.
- *delivery*: all programs end in order, and every batch is delivered in bounded time.
- *memory*: each queue keeps to its bound, and is empty when nothing is to be done (`site`).
- *start*: each program starts, whatever happened, and runs until it is stopped (`site`).
"""

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.simulation.archived import archived_closes, archived_rows
from bench.simulation.plan import BATCH_SAMPLES
from bench.simulation.record import Record
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.log.entries import WindowClose
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_aggregator.settings.from_settings import membership, topology

if TYPE_CHECKING:
    from bench.simulation.site import Site

_SLOWS_ARCHIVE = {"archive's disk full", "aggregator's disk slow"}


def check(site: "Site", counts: Counter[str]) -> None:
    """Checks a site that has ended; adds to `counts` what the run had."""
    _check_samples(site, counts)
    if site.record.restarts > 1:
        _check_verdicts(site.record, site.monitor.settings, counts)
    _check_alarms(site, counts)
    _check_counts(site)
    counts["restarts"] += site.record.restarts - 1
    counts.update(site.record.counts)


def differences(
    expected: dict[tuple[str, float], Judgement], found: dict[tuple[str, float], Judgement], last: float
) -> list[str]:
    """Differences of the judgements of two runs in the windows that end until `last`."""
    problems = []
    for key in sorted(expected.keys() | found.keys()):
        if key[1] > last:
            continue
        window = f"the window of {key[0]} until {key[1] - 1.8e9:.0f} s"
        if key not in expected or key not in found:
            where = "the disturbed run" if key not in found else "the undisturbed run"
            problems.append(f"verdicts: {where} lacks {window}")
        elif different := _differs(expected[key], found[key]):
            problems.append(f"verdicts: {different} of {window} differ from the undisturbed run")
    return problems


def windows_of(record: Record) -> dict[tuple[str, float], Judgement]:
    """The published judgements by group and end of the window."""
    return {(each.group, each.end): each for judged in record.judged.values() for each in judged}


def _check_samples(site: "Site", counts: Counter[str]) -> None:
    record = site.record
    folder = site.monitor.host.disk.folder / "archive"
    rows = archived_rows(folder, record)
    twice = sorted(row for row, times in rows.items() if times > 1)
    if twice and not record.without_snapshot:
        record.problem(f"twice: {len(twice)} rows are in the archive twice, such as {twice[:3]}")
    closes = archived_closes(folder)
    if doubled := [key for key, times in closes.items() if times > 1]:
        record.problem(f"twice: window closes are in the archive twice: {doubled[:3]}")
    for name, node in record.nodes.items():
        missing = {
            serial
            for serial in node.samples
            if any((name, serial, place) not in rows for place in range(record.disks))
            and serial not in node.excused
            and (name, serial) not in record.damaged_rows
        }
        counted = node.dropped + BATCH_SAMPLES * record.counted_lost + record.dropped_by_archive
        if record.damaged:
            counted += BATCH_SAMPLES * _gaps(site, name)
        if len(missing) > counted:
            examples = [(serial, node.spooled.get(serial, (b"", -1))[1]) for serial in sorted(missing)]
            record.problem(
                f"lost: {len(missing)} samples of {name}, {counted} are counted; serial numbers and batches: "
                f"{examples[:8]}"
            )
        counts["samples"] += len(node.samples)
        counts["samples lost and counted"] += len(missing)
        counts["samples lost with an unfinished batch or without a sync"] += sum(
            (name, serial, 0) not in rows for serial in node.excused
        )


def _check_counts(site: "Site") -> None:
    """What is counted as lost allows for losses above, so it must have a cause."""
    record = site.record
    if record.counted_lost and not record.damaged:
        record.problem(f"lost: {record.counted_lost} entries are counted as lost of an undamaged state")
    if record.dropped_by_archive and site.plan.kinds.isdisjoint(_SLOWS_ARCHIVE):
        record.problem(f"lost: the archive dropped {record.dropped_by_archive} records without a cause")


def _gaps(site: "Site", node: str) -> int:
    """Batches missing in the sequence numbers of a node's streams, which are declared after an hour."""
    assert site.monitor.app is not None
    found = 0
    for source in site.monitor.app._machine.admission._sources.get(node, {}).values():
        for stream in source.streams.values():
            ranges = stream.received.as_tuples()
            found += sum(low - end - 1 for (_, end), (low, _) in pairwise(ranges))
    return found


def _check_verdicts(record: Record, settings: AggregatorSettings, counts: Counter[str]) -> None:
    """Replays all inputs into one machine; its judgements are the expected ones."""
    assert settings.state is not None
    machine = Machine(
        membership(settings),
        topology(settings.topology),
        lateness_seconds=settings.detect.lateness,
        after_seconds=settings.alarm.after_seconds,
        site=settings.site,
        forget_ns=round(settings.state.forget_days * 86_400e9),
    )
    for entry in record.log:
        judged = tuple(result for result in machine.replay(entry) if isinstance(result, Judgement))
        if not isinstance(entry, WindowClose) or entry.lsn not in record.judged:
            continue
        published = record.judged[entry.lsn]
        counts["windows"] += len(published)
        counts["verdicts"] += sum(each.verdicts.score.size for each in published)
        different = {_differs(*pair) for pair in zip(judged, published, strict=False)} - {""}
        if different or len(judged) != len(published):
            record.problem(
                f"verdicts: {', '.join(sorted(different)) or 'number'} of {entry.group} until "
                f"{entry.end - 1.8e9:.0f} s (lsn {entry.lsn}) differ from a machine without restarts"
            )
            return


def _differs(expected: Judgement, found: Judgement) -> str:
    """The first part in which two judgements differ, or nothing."""
    if expected.components != found.components:
        return "components"
    parts: dict[str, tuple[Any, Any]] = {
        name: (getattr(expected.verdicts, name), getattr(found.verdicts, name))
        for name in ("anomalous", "score", "severity", "observed", "reference")
    }
    for name in ("persistence", "straggler", "since"):
        parts[name] = (getattr(expected, name), getattr(found, name))
    for name, (one, other) in parts.items():
        if not np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
            return name
    events = [
        [(each.kind, each.alarm.component, each.alarm.since, each.at) for each in judged.transitions]
        for judged in (expected, found)
    ]
    return "" if events[0] == events[1] else "transitions"


def _check_alarms(site: "Site", counts: Counter[str]) -> None:
    record, interval = site.record, site.plan.interval_seconds
    standing: dict[str, bool] = {}
    slow = record.slow
    for published in record.alarms:
        event, durable = published.event, published.durable
        name, at = event.alarm.component, event.at
        counts[f"alarms {event.kind}"] += 1
        if event.kind == "raised":
            if standing.get(name) and not record.damaged:
                record.problem(f"alarms: {name} is raised again at {at - 1.8e9:.0f} s")
            if name != slow.component or at <= slow.first * interval:
                record.problem(f"alarms: {name} is raised at {at - 1.8e9:.0f} s and is healthy")
            standing[name] = durable
        else:
            if name not in standing:
                record.problem(f"alarms: {name} is cleared at {at - 1.8e9:.0f} s and was not raised")
            standing.pop(name, None)
            if name == slow.component and at <= slow.last * interval:
                record.problem(f"alarms: {name} is cleared at {at - 1.8e9:.0f} s and is slow")
