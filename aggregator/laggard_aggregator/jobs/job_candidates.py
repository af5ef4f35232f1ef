"""Candidates of a list of jobs in order of time, by what is rare in it: a node, a component, a finding.

Whoever sees all jobs gets the newest 50 on a node, or of an OST, without a look at the others.
"""

import heapq
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from laggard_aggregator.jobs.index_schema import tick

_BLOCK: Final = 200
_NODE_SPANS: Final = (16 * 86_400.0, 64 * 86_400.0, 256 * 86_400.0, 1e12)
"""Seconds before the newest job in which jobs of a node are searched, one after the other."""
_FEW: Final = 20_000
"""Fewer jobs below a share of their history are sorted; more are often enough in order of time."""

_OF_COMPONENT: Final = (
    "select x.at, x.job from uses x where x.component = :id and x.at <= :newest"
    " order by x.at desc, x.job desc"
)
_AMPLIFIED: Final = (
    "select x.at, x.id from summaries x where x.amplification > 1.5 and x.at <= :newest"
    " order by x.at desc, x.id desc"
)
_FEW_BELOW: Final = (
    "select x.at, x.id from summaries x where x.ratio < :below_history and +x.at <= :newest"
    " order by +x.at desc, +x.id desc"
)
_MANY_BELOW: Final = (
    "select x.at, x.id from summaries x where +x.ratio < :below_history and x.at <= :newest"
    " order by x.at desc, x.id desc"
)
_ON_NODE: Final = (
    "select distinct b.job from nodes n cross join boxes b"
    " where n.name = :node and b.low <= n.number and b.high >= n.number and b.end >= :tick"
)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Numbers of jobs as JSON; of those that count `at` is in (after, until]. Later ones are older."""

    ids: str
    after: float
    until: float


def candidates(db: sqlite3.Connection, values: dict[str, Any], finding: str) -> Iterator[Candidates] | None:
    """Blocks of candidates of the list with these parameters, None where nothing in it is rare."""
    newest = min(values.get("at", 1e15), values.get("before", 1e15))
    bounded = values | {"newest": newest}
    if "node" in values:
        return _on_node(db, values["node"], newest)
    if "component" in values:
        found = db.execute("select id from components where name = ?", (values["component"],)).fetchall()
        ordered = [db.execute(_OF_COMPONENT, {"id": each, "newest": newest}) for (each,) in found]
        return _blocks(heapq.merge(*ordered, reverse=True))
    if finding == "amplification":
        return _blocks(db.execute(_AMPLIFIED, {"newest": newest}))
    if "below_history" in values:
        few = "select count(*) from (select 1 from summaries where ratio < ? limit ?)"
        count = db.execute(few, (values["below_history"], _FEW)).fetchone()[0]
        below = {name: bounded[name] for name in ("below_history", "newest")}
        return _blocks(db.execute(_FEW_BELOW if count < _FEW else _MANY_BELOW, below))
    return None


def _blocks(ordered: Iterator[tuple[float, int]]) -> Iterator[Candidates]:
    """Blocks of jobs in order of time, each once."""
    block: list[int] = []
    last = -1
    for _, job in ordered:
        if job != last:
            block.append(job)
        last = job
        if len(block) == _BLOCK:
            yield Candidates(json.dumps(block), -1e15, 1e15)
            block = []
    if block:
        yield Candidates(json.dumps(block), -1e15, 1e15)


def _on_node(db: sqlite3.Connection, node: str, newest: float) -> Iterator[Candidates]:
    last = db.execute("select max(at) from jobs").fetchone()[0]
    if last is None:
        return
    until = newest = min(newest, last)
    for span in _NODE_SPANS:
        after = newest - span
        found = db.execute(_ON_NODE, {"node": node, "tick": tick(after)}).fetchall()
        yield Candidates(json.dumps([job for (job,) in found]), after, until)
        until = after
