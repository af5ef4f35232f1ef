"""Candidates of a list of jobs, newest first, by what is rare in it: a node, a component, a finding.

Each is read from an index that begins with whose jobs may be listed, so the newest 50 are found without a
look at other jobs.
"""

import heapq
import sqlite3
from collections.abc import Iterator
from typing import Any, Final

from laggard_aggregator.jobs.index.schema import BLOCK_NODES

Candidate = tuple[float, int]
"""Time and number of a job."""
_FEW: Final = 20_000
"""Up to this many jobs are sorted; of more, a scan in order of time finds the newest soon."""

_OF_NODE: Final = "x.at, x.job from stays x where x.block = :block and (x.nodes >> :bit) & 1"
_OF_COMPONENT: Final = "x.at, x.job from uses x where x.component = :component_id"
_AMPLIFIED: Final = "x.at, x.id as job from summaries x where x.amplification > 1.5"
_OF_VERDICT: Final = (
    "x.at, x.id as job from verdicts x where x.verdict <> 'as usual' and x.verdict = :finding"
)
_OF_KIND: Final = "x.at, x.job from findings x where x.kind = :finding"
_BELOW: Final = "x.at, x.id as job from summaries x where +x.ratio < :below_history"
_FEW_BELOW: Final = "x.at, x.id as job from summaries x where x.ratio < :below_history"
AMPLIFICATION: Final = "amplification"
"""The finding that is also that of a job's summary."""
_VERDICTS: Final = ("slow", "different work")


def candidates(
    db: sqlite3.Connection, values: dict[str, Any], finding: str, owner: str
) -> Iterator[Candidate] | None:
    """Jobs that a list may have, the newest first; None where nothing in the list is rare.

    `values`: parameters of the list, and `at` of the job that it continues after. `owner`: condition on `x`,
    whose jobs they are; empty for everyone's.
    """
    if "node" in values:
        sources = _on_node(db, values)
    elif "component" in values:
        ids = db.execute("select id from components where name = :component", values).fetchall()
        sources = [(_OF_COMPONENT, {"component_id": component}) for (component,) in ids]
    elif finding:
        of_finding = [_OF_VERDICT] if finding in _VERDICTS else [_OF_KIND]
        if finding == AMPLIFICATION:
            of_finding.append(_AMPLIFIED)
        sources = [(order, {"finding": finding}) for order in of_finding]
    elif "below_history" in values:
        sources = [(_FEW_BELOW if not owner and _are_few(db, values) else _BELOW, {})]
    else:
        return None
    newest = {"newest": min(values.get("at", 1e15), values.get("before", 1e15))}
    streams = (_ordered(db, source, owner, values | more | newest) for source, more in sources)
    return heapq.merge(*streams, reverse=True)


def _on_node(db: sqlite3.Connection, values: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    numbers = db.execute("select number from nodes where name = :node", values).fetchall()
    places = (divmod(number, BLOCK_NODES) for (number,) in numbers)
    return [(_OF_NODE, {"block": block, "bit": bit}) for block, bit in places]


def _are_few(db: sqlite3.Connection, values: dict[str, Any]) -> bool:
    """Whether jobs below a share of their history are better sorted than searched in order of time."""
    count = "select count(*) from (select 1 from summaries where ratio < :below_history limit :few)"
    return bool(db.execute(count, values | {"few": _FEW}).fetchone()[0] < _FEW)


def _ordered(db: sqlite3.Connection, source: str, owner: str, values: dict[str, Any]) -> Iterator[Candidate]:
    """Reads candidates as they are asked for, the newest first."""
    whose = f" and {owner}" if owner else ""
    plus = "+" if source == _FEW_BELOW else ""  # these are sorted
    order = f"{plus}x.at <= :newest order by {plus}x.at desc, {plus}job desc"
    return db.execute(f"select {source}{whose} and {order}", values)
