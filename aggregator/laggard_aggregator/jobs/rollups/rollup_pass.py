"""The pass that keeps `series60` up to date with the counters of the archive.

An hour is due ten minutes after its end, and again when readings of it come later, then for their nodes only.
`series60.json` in the archive's folder names the files that were seen and the hours that are due. It is
written after the rows: a pass that is killed is done again and adds nothing twice. Without the file all is
looked through again, with the same result.
"""

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from laggard_aggregator.archive.table import OpenPart, Table, day_of, integers, received_day, tables_of
from laggard_aggregator.files.atomic_write import replace_durably
from laggard_aggregator.files.kept_json import read_kept
from laggard_aggregator.jobs.rollups.counter_slices import MOST_GAP_NS, CounterSlices
from laggard_aggregator.jobs.rollups.series60 import HOUR_NS, KIND, roll_hour
from laggard_common.errors import ArchiveError

PROGRESS = "series60.json"
SETTLE_NS = 600 * 1_000_000_000
"""Time after its end at which an hour is rolled up, for messages that come late."""
_PASS_SECONDS = 120.0
"""Most time from then until its rows are written."""
MAX_NODES = 256
"""Nodes of an hour that are noted one by one; with more of them all are rolled up again."""
MAX_AHEAD_NS = 86_400 * 1_000_000_000
"""Readings further ahead of the clock come from a wrong clock and are left out."""

Dirty = dict[int, frozenset[str] | None]
"""Start of each hour that is due, with its nodes; None for all."""


def rolled_until(now: float) -> float:
    """End of the last hour whose rollups are there at `now`, both in epoch seconds."""
    return (now - SETTLE_NS / 1e9 - _PASS_SECONDS) // 3600 * 3600


@dataclass(slots=True)
class _Progress:
    """Of one source and site: `seen`: number of the last part of each day; `damaged`: number of files of
    rollups set aside by day; `done`: hours rolled up so far."""

    seen: dict[str, int] = field(default_factory=dict)
    damaged: dict[str, int] = field(default_factory=dict)
    dirty: Dirty = field(default_factory=dict)
    done: set[int] = field(default_factory=set)

    def add(self, hour: int, nodes: frozenset[str] | None) -> None:
        """Notes that an hour is due for `nodes`."""
        before = self.dirty.get(hour, frozenset())
        every = None if nodes is None or before is None else before | nodes
        self.dirty[hour] = None if every is None or len(every) > MAX_NODES else every


@dataclass(frozen=True, slots=True)
class Rolled:
    """Of one pass: hours and rows; `waiting`: hours that are due and were left; `lag_seconds`: age of the
    oldest."""

    hours: int = 0
    rows: int = 0
    waiting: int = 0
    lag_seconds: float = 0.0


class RollupPass:
    """Rolls up the archive in `directory`. Not thread-safe; one call of `run` at a time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, now_ns: int, raw_days: int, go_on: Callable[[], bool] = lambda: True) -> Rolled:
        """Rolls up the hours that are due, oldest first, while `go_on()`.

        A source with a file that cannot be read stops no other. Raises ArchiveError for the first one at the
        end, and at once where the progress cannot be written.
        Hours whose raw data expires are left as they are: `raw_days` as in `[archive]`.
        """
        progress = self._load()
        hours = rows = 0
        oldest = now_ns - raw_days * 86_400 * 10**9
        failures: dict[tuple[str, str], ArchiveError] = {}
        for counters in tables_of(self.directory, "counters"):
            mine = progress.setdefault((counters.source, counters.site), _Progress())
            try:
                _note_new(counters, mine, now_ns, oldest)
                _note_damaged(counters, mine)
            except ArchiveError as exc:
                failures[counters.source, counters.site] = exc
        self._save(progress)
        for hour, table in sorted(
            (h, table) for table, own in progress.items() for h in own.dirty if _is_due(h, now_ns)
        ):
            if not go_on():
                break
            if table in failures:
                continue
            mine = progress[table]
            try:
                rolled = roll_hour(CounterSlices(self.directory, *table), hour, mine.dirty[hour], go_on)
            except ArchiveError as exc:
                failures[table] = exc
                continue
            del mine.dirty[hour]
            mine.done.add(hour)
            hours, rows = hours + 1, rows + rolled.rows
            self._save(progress)
        for failure in failures.values():
            raise failure
        left = [hour for own in progress.values() for hour in own.dirty if _is_due(hour, now_ns)]
        lag = (now_ns - min(left) - HOUR_NS - SETTLE_NS) / 1e9 if left else 0.0
        return Rolled(hours, rows, len(left), lag)

    def _load(self) -> dict[tuple[str, str], _Progress]:
        """The progress so far; none where that is damaged. Raises ArchiveError where it cannot be read."""

        def made(content: Any) -> dict[tuple[str, str], _Progress]:
            return {(table["source"], table["site"]): _of_record(table) for table in content["tables"]}

        return read_kept(self.directory / PROGRESS, made, "all hours are rolled up again") or {}

    def _save(self, progress: dict[tuple[str, str], _Progress]) -> None:
        tables = [_record(*table, own) for table, own in sorted(progress.items())]
        replace_durably(self.directory / PROGRESS, json.dumps({"tables": tables}).encode())


def _note_new(counters: Table, mine: _Progress, now_ns: int, oldest_ns: int) -> None:
    """Notes the hours to which the files that are new have readings."""
    for file in counters.new_since(mine.seen):
        span = file.span("tick")
        if span is None:
            continue
        first, last = max(span[0], oldest_ns), min(span[1], now_ns + MAX_AHEAD_NS)
        hours = range((first - 1) // HOUR_NS * HOUR_NS, last + MOST_GAP_NS, HOUR_NS)
        late = {hour for hour in hours if hour in mine.done}
        for hour in hours:
            if hour not in mine.done and hour < last:
                mine.add(hour, None)
        for hour, nodes in _nodes_of(file, late) if late else ():
            mine.add(hour, nodes)
    mine.seen = {day: last for day, last in mine.seen.items() if day >= received_day(oldest_ns)}
    horizon = oldest_ns - HOUR_NS
    mine.done = {hour for hour in mine.done if hour >= horizon}
    mine.dirty = {hour: nodes for hour, nodes in mine.dirty.items() if hour >= horizon}


def _note_damaged(counters: Table, mine: _Progress) -> None:
    """Notes the hours of days whose rollup files were set aside."""
    rollups = Table(counters.directory, KIND, counters.source, counters.site)
    days = frozenset(rollups.newly_damaged_days(mine.damaged))
    for hour in mine.done:
        if day_of(hour / 1e9) in days:
            mine.add(hour, None)


def _is_due(hour: int, now_ns: int) -> bool:
    return hour + HOUR_NS + SETTLE_NS <= now_ns


def _nodes_of(file: OpenPart, hours: Collection[int]) -> Iterator[tuple[int, frozenset[str]]]:
    """Yields those of `hours` that the readings of a file change, with their nodes.

    A reading changes its own hour, and the next one where the following reading is there.
    """
    for table in file.scan(["node", "tick"]):
        tick = integers(table, "tick")
        column = table["node"].unify_dictionaries().combine_chunks()
        names, code = column.dictionary.to_pylist(), column.indices.to_numpy()
        of_tick = (tick - 1) // HOUR_NS * HOUR_NS
        of_next = (tick - 1 + MOST_GAP_NS) // HOUR_NS * HOUR_NS
        for hour in hours:
            inside = (of_tick == hour) | (of_next == hour)
            if inside.any():
                yield hour, frozenset(names[at] for at in np.unique(code[inside]).tolist())


def _record(source: str, site: str, mine: _Progress) -> dict[str, Any]:
    return {
        "source": source,
        "site": site,
        "seen": mine.seen,
        "damaged": mine.damaged,
        "done": [_time(hour) for hour in sorted(mine.done)],
        "dirty": {
            _time(hour): None if nodes is None else sorted(nodes)
            for hour, nodes in sorted(mine.dirty.items())
        },
    }


def _of_record(record: Any) -> _Progress:
    """Raises KeyError, ValueError or TypeError for a record of another form."""
    dirty = {
        _hour(hour): None if nodes is None else frozenset(map(str, nodes))
        for hour, nodes in record["dirty"].items()
    }
    seen = {str(day): int(last) for day, last in record["seen"].items()}
    damaged = {str(day): int(files) for day, files in record.get("damaged", {}).items()}
    return _Progress(seen, damaged, dirty, {_hour(hour) for hour in record["done"]})


def _time(hour_ns: int) -> str:
    return datetime.fromtimestamp(hour_ns // 10**9, UTC).strftime("%Y-%m-%dT%HZ")


def _hour(text: str) -> int:
    return int(datetime.strptime(text, "%Y-%m-%dT%HZ").replace(tzinfo=UTC).timestamp()) * 10**9
