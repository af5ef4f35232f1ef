"""Lists of jobs from the hot index, the newest first, by the grants of a principal."""

import heapq
import itertools
import json
from collections.abc import Iterator
from typing import Any, Final

from laggard_aggregator.jobs.access.candidates import Candidate, candidates
from laggard_aggregator.jobs.access.filter import JobSelection
from laggard_aggregator.jobs.access.principals import Principal
from laggard_aggregator.jobs.access.statements import (
    COLUMNS,
    WITH_RESULTS,
    excludes,
    grants,
    in_order,
    owner_of,
)
from laggard_aggregator.jobs.index.reader import IndexReader, Row
from laggard_aggregator.jobs.index.schema import OPEN_SPAN

_FROM_BLOCK: Final = f"from json_each(:block) i cross join jobs j on j.id = i.value {WITH_RESULTS}"
_BLOCK: Final = 10_000
"""Jobs that are counted at a time."""


class JobLists:
    """Lists of the index that `reader` reads.

    The numbers of jobs are found first, for each grant from an index without the jobs of others, then the
    rows of those that are listed.
    """

    def __init__(self, reader: IndexReader) -> None:
        self._reader = reader

    def newest(
        self, principal: Principal, selection: JobSelection, more: dict[str, Any], limit: int
    ) -> list[Row]:
        """The newest jobs of a list, those before the job `at`, `id` of `more` where it has them."""
        conditions, values = selection.sql()
        values |= more
        if more:
            conditions.append("(j.at, j.id) < (:at, :id)")
        allowed = [grant for grant in grants(principal) if not excludes(grant[1], values)]
        parts = self._parts(principal, values)
        if not allowed:
            return []
        with self._reader.reading():
            sources: list[Iterator[Candidate]] = []
            for access, granted in allowed:
                values |= granted
                rare = candidates(
                    self._reader.connection(), values, selection.finding, owner_of(granted, values)
                )
                if rare is not None:
                    sources.append(rare)
                else:
                    sources += self._in_order(conditions, parts, access, values | {"most": limit})
            ids = (job for (_, job), _ in itertools.groupby(heapq.merge(*sources, reverse=True)))
            conditions.append("(" + " or ".join(access for access, _ in allowed) + ")")
            return self._of_ids(ids, conditions, values, limit)

    def count(self, principal: Principal, selection: JobSelection) -> int | None:
        """Number of jobs of a list; None where nothing in it is rare, so that a scan counts them best."""
        conditions, values = selection.sql()
        allowed = [grant for grant in grants(principal) if not excludes(grant[1], values)]
        ids: set[int] = set()
        with self._reader.reading():
            db = self._reader.connection()
            for _, granted in allowed:
                values |= granted
                rare = candidates(db, values, selection.finding, owner_of(granted, values))
                if rare is None:
                    return None
                ids.update(job for _, job in rare)
            if not ids:
                return 0
            conditions.append("(" + " or ".join(access for access, _ in allowed) + ")")
            sql = f"select count(*) {_FROM_BLOCK} where {' and '.join(conditions)}"
            ordered, count = sorted(ids), 0
            for at in range(0, len(ordered), _BLOCK):
                block = json.dumps(ordered[at : at + _BLOCK])
                count += int(db.execute(sql, values | {"block": block}).fetchone()[0])
            return count

    def _in_order(
        self, conditions: list[str], parts: dict[str, str], access: str, values: dict[str, Any]
    ) -> list[Iterator[Candidate]]:
        """The jobs of a list that one grant shows, the newest first, of each part of the jobs."""
        own = in_order(conditions, {name for name in ("user", "account") if access.startswith(f"j.{name} =")})
        candidates: list[Iterator[Candidate]] = []
        for jobs, condition in parts.items():
            where = " and ".join([*own, condition, access]) + " order by j.at desc, j.id desc limit :most"
            sql = f"select j.at, j.id from {jobs} {WITH_RESULTS} where {where}"  # noqa: S608 - own texts
            candidates.append(self._reader.connection().execute(sql, values))
        return candidates

    def _parts(self, principal: Principal, values: dict[str, Any]) -> dict[str, str]:
        """Jobs to search, with a condition on each part: those that are over, and those that run."""
        if "after" not in values or not principal.sees_all:
            return {"jobs j": "1"}
        values["oldest"] = values["after"] - self._longest()
        return {
            "jobs j": "j.end is not null and j.at >= :oldest",
            "jobs j indexed by jobs_open": "j.end is null",
        }

    def _longest(self) -> float:
        """Seconds of the longest job that is over."""
        sql = "select max(seconds) as seconds from spans where span < :open"
        return float(self._reader.rows(sql, {"open": OPEN_SPAN})[0]["seconds"])

    def _of_ids(
        self, ids: Iterator[int], conditions: list[str], values: dict[str, Any], limit: int
    ) -> list[Row]:
        """The first `limit` of these jobs for which the conditions hold, in their order."""
        sql = f"select {COLUMNS} {_FROM_BLOCK} where {' and '.join(conditions)} order by i.key"
        rows: list[Row] = []
        while len(rows) < limit and (block := list(itertools.islice(ids, limit))):
            rows += self._reader.rows(sql, values | {"block": json.dumps(block)})
        return rows[:limit]
