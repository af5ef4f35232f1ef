"""Adds rows of the archive to the tables of the hot index; adding a row twice changes nothing."""

import re
import sqlite3
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from laggard_aggregator.jobs.index.schema import (
    BLOCK_NODES,
    FINDING_COLUMNS,
    JOB_COLUMNS,
    SUMMARY_COLUMNS,
    TIME_ORIGIN,
    key_digest,
    span,
)

_WITH_JOB = "from (select 1) left join jobs j on j.id = ?1"
_DIGITS = re.compile(r"(\d+)", re.ASCII)
_FOREVER = (1 << 31) - 1


def add_jobs(db: sqlite3.Connection, table: pa.Table, day: str) -> None:
    """Adds revisions of jobs: the last of each counts, and drops the nodes of earlier ones."""
    ids = _job_ids(db, table)
    revisions = _nanoseconds(table)
    columns = [_values(table, name) for name in JOB_COLUMNS]
    at = [
        s if s is not None else t
        for s, t in zip(_values(table, "start"), _values(table, "submit"), strict=True)
    ]
    keys = _values(table, "job_key")
    digests = [key_digest(key) for key in keys]
    owners = {f"{name}_id": _owner_ids(db, _values(table, name)) for name in ("user", "account")}
    spans = [
        span(None if end is None else end - begin)
        for begin, end in zip(at, _values(table, "end"), strict=True)
    ]
    derived = {"at": at, "job_key": keys, "key_digest": digests, "span": spans, **owners}
    names = ("id", "revision_at", "day", *derived, *JOB_COLUMNS)
    rows = zip(ids, revisions, [day] * len(ids), *derived.values(), *columns, strict=True)
    db.execute("create temp table if not exists changed (id integer primary key, revision_at integer)")
    db.execute("delete from changed")
    db.executemany(_upsert("jobs", names), rows)
    db.executemany(
        "insert into changed select id, revision_at from jobs where id = ? and revision_at = ?"
        " on conflict do nothing",
        zip(ids, revisions, strict=True),
    )
    stale = (
        "from changed c join members m on m.job = c.id where not m.observed and m.revision_at < c.revision_at"
    )
    moved = [job for (job,) in db.execute(f"select distinct c.id {stale}")]
    db.execute(f"delete from boxes where id in (select m.id {stale})")  # noqa: S608 - a constant
    db.execute(f"delete from members where id in (select m.id {stale})")  # noqa: S608 - a constant
    _add_stays(db, moved)
    db.execute(
        "insert or ignore into touched select j.user, j.account, j.application, j.node_count"
        " from changed c join jobs j on j.id = c.id where j.node_count is not null"
    )


def add_nodes(db: sqlite3.Connection, table: pa.Table, _day: str) -> None:
    """Adds the nodes of jobs as ranges of consecutive numbers."""
    if not len(table):
        return
    jobs = np.array(_job_ids(db, table), np.int64)
    numbers = _node_numbers(db, table["node"])
    revision = np.array(_nanoseconds(table), np.int64)
    observed = pc.equal(table["source"].cast(pa.string()), "cgroup").to_numpy().astype(np.int64)
    start = table["start"].to_numpy()
    end = table["end"].to_numpy()  # NaN: still running
    closed = np.nan_to_num(end, nan=np.inf)
    order = np.lexsort([numbers, closed, start, observed, revision, jobs])
    keys = [column[order] for column in (jobs, revision, observed, start, closed)]
    breaks = np.diff(numbers[order], prepend=-2) > 1
    for column in keys:
        breaks[1:] |= column[1:] != column[:-1]
    first = np.flatnonzero(breaks)
    last = np.append(first[1:], len(order)) - 1
    low, high = numbers[order][first], numbers[order][last]
    top = db.execute("select coalesce(max(id), 0) from members").fetchone()[0]
    firsts = [column[first].tolist() for column in keys]
    ends = [None if end == np.inf else end for end in firsts[4]]
    rows = zip(
        range(top + 1, top + 1 + len(first)),
        *firsts[:3],
        low.tolist(),
        high.tolist(),
        firsts[3],
        ends,
        strict=True,
    )
    db.executemany(
        "insert or ignore into members (id, job, revision_at, observed, low, high, start, end)"
        " values (?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    stale = (
        "select m.id from members m join jobs j on j.id = m.job"
        " where m.id > ? and not m.observed and m.revision_at < j.revision_at"
    )
    db.execute(f"delete from members where id in ({stale})", (top,))  # noqa: S608 - a constant
    db.execute(
        "insert into boxes select id, max(-?1, cast(start as integer) - ?1), min(?2, max("
        "cast(start as integer) - ?1, coalesce(cast(end as integer) + 1 - ?1, ?2))), low, high, job"
        " from members where id > ?3",
        (TIME_ORIGIN, _FOREVER, top),
    )
    _add_stays(db, np.unique(jobs).tolist())


def _add_stays(db: sqlite3.Connection, jobs: Sequence[int]) -> None:
    """Writes the blocks of nodes of jobs again, in each the nodes that a job had, as bits."""
    for job in jobs:
        blocks: dict[int, int] = {}
        for low, high in db.execute("select low, high from members where job = ?", (job,)):
            for block in range(low // BLOCK_NODES, high // BLOCK_NODES + 1):
                first = max(low - block * BLOCK_NODES, 0)
                last = min(high - block * BLOCK_NODES, BLOCK_NODES - 1)
                blocks[block] = blocks.get(block, 0) | ((2 << last) - (1 << first))
        signed = {block: bits - (bits >> BLOCK_NODES - 1 << BLOCK_NODES) for block, bits in blocks.items()}
        db.execute("delete from stays where job = ?", (job,))
        db.executemany(
            "insert into stays (job, block, nodes, at, user_id, account_id)"
            f" select ?1, ?2, ?3, j.at, j.user_id, j.account_id {_WITH_JOB}",
            ((job, block, bits) for block, bits in signed.items()),
        )


def add_components(db: sqlite3.Connection, table: pa.Table, _day: str) -> None:
    """Adds the components that carried the I/O of jobs."""
    if not len(table):
        return
    jobs, revisions = np.array(_job_ids(db, table), np.int64), np.array(_nanoseconds(table), np.int64)
    layer, name = (_coded(table[column]) for column in ("layer", "component"))
    names = len(name.dictionary)
    pairs, of_row = np.unique(
        layer.indices.to_numpy().astype(np.int64) * names + name.indices.to_numpy(), return_inverse=True
    )
    layers, components = layer.dictionary.to_pylist(), name.dictionary.to_pylist()
    distinct = [(layers[pair // names], components[pair % names]) for pair in pairs.tolist()]
    db.executemany("insert or ignore into components (layer, name) values (?, ?)", distinct)
    find = "select id from components where layer = ? and name = ?"
    number = np.array([db.execute(find, pair).fetchone()[0] for pair in distinct], np.int64)[of_row]
    known, of_job = np.unique(jobs, return_inverse=True)
    newest = np.zeros(len(known), np.int64)
    np.maximum.at(newest, of_job, revisions)
    last = revisions == newest[of_job]
    rows = np.unique(np.stack([of_job[last], number[last]]), axis=1)
    db.executemany(
        "delete from uses where job = ? and revision_at < ?",
        zip(known.tolist(), newest.tolist(), strict=True),
    )
    db.executemany(
        "insert into uses (job, component, revision_at, at, user_id, account_id)"  # noqa: S608
        f" select ?1, ?2, ?3, j.at, j.user_id, j.account_id {_WITH_JOB}"
        " where not exists (select 1 from uses where job = ?1 and revision_at > ?3) on conflict do nothing",
        zip(known[rows[0]].tolist(), rows[1].tolist(), newest[rows[0]].tolist(), strict=True),
    )


def add_summaries(db: sqlite3.Connection, table: pa.Table, _day: str) -> None:
    """Adds summaries; their rate is that of reads and writes together."""
    ids, revisions = _job_ids(db, table), _nanoseconds(table)
    columns = [_values(table, name) for name in SUMMARY_COLUMNS]
    rates = [
        known if known is not None else _rate_without(*rest)
        for known, *rest in zip(
            *(_values(table, f"{name}mib_per_second") for name in ("", "mean_read_", "mean_written_")),
            *(_values(table, name) for name in ("read_bytes", "written_bytes", "active_seconds")),
            strict=True,
        )
    ]
    names = ("id", "revision_at", "rate", *SUMMARY_COLUMNS)
    db.executemany(_upsert("summaries", names), zip(ids, revisions, rates, *columns, strict=True))
    _add_owners(db, "summaries", ids)
    db.executemany(
        "insert or ignore into touched select user, account, application, node_count"
        " from jobs where id = ? and node_count is not null",
        ((id_,) for id_ in ids),
    )


def _rate_without(
    mean_read: float | None,
    mean_written: float | None,
    read_bytes: float | None,
    written_bytes: float | None,
    active_seconds: float | None,
) -> float | None:
    """The rate, in MiB/s, of a summary that lacks it, as those of versions before 0.3 do.

    Times of reads and of writes can overlap: it is over both, but no longer than the job was active.
    """
    directions = [(mean_read, read_bytes), (mean_written, written_bytes)]
    moved = [(mean, amount / 2**20) for mean, amount in directions if mean and amount]
    if not moved:
        return (
            None if mean_read is None and mean_written is None else max(mean_read or 0.0, mean_written or 0.0)
        )
    times = [amount / mean for mean, amount in moved]
    seconds = max(min(sum(times), active_seconds or sum(times)), *times)
    return sum(amount for _, amount in moved) / seconds


def add_findings(db: sqlite3.Connection, table: pa.Table, _day: str) -> None:
    """Adds verdicts and their findings; those of the last revision count."""
    ids, revisions = _job_ids(db, table), _nanoseconds(table)
    joined = table["joined_at"].cast(pa.int64()).to_pylist()
    own = [_values(table, name) for name in ("verdict", "slowdown", "sentence")]
    names = ("id", "revision_at", "joined_at", "verdict", "slowdown", "sentence")
    db.executemany(_upsert("verdicts", names), zip(ids, revisions, joined, *own, strict=True))
    _add_owners(db, "verdicts", ids)
    stale = "delete from findings where job = ? and revision_at < ?"
    db.executemany(stale, zip(ids, revisions, strict=True))
    columns = [_values(table, name) for name in ("rank", *FINDING_COLUMNS)]
    rows = (row for row in zip(ids, revisions, *columns, strict=True) if row[3] is not None)
    places = ", ".join(f"?{at}" for at in range(1, len(FINDING_COLUMNS) + 4))
    db.executemany(
        f"insert into findings (job, revision_at, rank, {', '.join(FINDING_COLUMNS)},"  # noqa: S608
        f" at, user_id, account_id) select {places}, j.at, j.user_id, j.account_id {_WITH_JOB}"
        " where not exists (select 1 from findings where job = ?1 and revision_at > ?2)"
        " on conflict do nothing",
        rows,
    )


def _add_owners(db: sqlite3.Connection, table: str, ids: Sequence[int]) -> None:
    """Gives rows of a table the time of their job, and whose it is."""
    db.executemany(
        f"update {table} set (at, user_id, account_id) ="  # noqa: S608 - names of this module
        " (select at, user_id, account_id from jobs where id = ?1) where id = ?1",
        ((id_,) for id_ in ids),
    )


def _owner_ids(db: sqlite3.Connection, names: Sequence[str | None]) -> list[int | None]:
    """Numbers of users or projects."""
    known = {name for name in names if name is not None}
    db.executemany("insert or ignore into owners (name) values (?)", ((name,) for name in sorted(known)))
    find = "select id from owners where name = ?"
    number: dict[str | None, int | None] = {name: db.execute(find, (name,)).fetchone()[0] for name in known}
    return [number.get(name) for name in names]


def _upsert(table: str, names: Sequence[str]) -> str:
    """Statement that inserts a row, or replaces one of the same id and an earlier revision."""
    quoted = [f'"{name}"' for name in names]
    sets = ", ".join(f"{name} = excluded.{name}" for name in quoted[1:])
    return (
        f"insert into {table} ({', '.join(quoted)}) values ({', '.join('?' * len(names))})"  # noqa: S608
        f" on conflict (id) do update set {sets} where excluded.revision_at >= revision_at"
    )


def _values(table: pa.Table, name: str) -> list[Any]:
    """A column as Python values; nulls where the file lacks it."""
    return table[name].to_pylist() if name in table.column_names else [None] * len(table)


def _nanoseconds(table: pa.Table) -> list[int]:
    return table["revision_at"].cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]


def _job_ids(db: sqlite3.Connection, table: pa.Table) -> list[int]:
    """Numbers of the jobs of each row; new jobs get one.

    Where starts are known, new numbers are in their order, as lists have it: a list then reads few pages.
    """
    coded = _coded(table["job_key"])
    keys = coded.dictionary.to_pylist()
    new = keys
    if "start" in table.column_names:
        new = _coded(table["job_key"].take(pc.sort_indices(table["start"]))).dictionary.to_pylist()
    db.executemany("insert or ignore into keys (job_key) values (?)", ((key,) for key in new))
    find = "select id from keys where job_key = ?"
    ids = np.array([db.execute(find, (key,)).fetchone()[0] for key in keys], np.int64)
    return ids[coded.indices.to_numpy()].tolist()  # type: ignore[no-any-return]


def _coded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """A column of texts as one array with a dictionary that has each of them once."""
    whole = column.cast(pa.string()).combine_chunks()
    return (whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole).dictionary_encode()


def _node_numbers(db: sqlite3.Connection, column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Numbers of nodes, consecutive for consecutive names that come together."""
    coded = _coded(column)
    names = coded.dictionary.to_pylist()
    known: dict[str, int] = dict(db.execute("select name, number from nodes"))
    new = sorted((name for name in names if name not in known), key=_natural)
    top = max(known.values(), default=-1)
    known.update({name: top + 1 + at for at, name in enumerate(new)})
    db.executemany("insert into nodes values (?, ?)", ((known[name], name) for name in new))
    numbers: NDArray[np.int64] = np.array([known[name] for name in names], np.int64)
    node_numbers: NDArray[np.int64] = numbers[coded.indices.to_numpy()]
    return node_numbers


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key by which node9 comes before node10."""
    return [
        (int(part[-18:]), part) if part.isdecimal() and part.isascii() else (-1, part)
        for part in _DIGITS.split(name)
    ]
