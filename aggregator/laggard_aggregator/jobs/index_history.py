"""History of jobs in the hot index: rates of earlier runs of the same user, project, application and size.

A group lies within one user and project, so whoever sees a job may see its history.
"""

import itertools
import sqlite3

import numpy as np

_MIN_RUNS = 5
"""Fewer runs than this have no history."""

_RATES = (
    "select t.user, t.account, t.application, t.node_count, j.id, s.rate from touched t"
    " join jobs j on j.user = t.user and j.account = t.account and j.application = t.application"
    " and j.node_count = t.node_count join summaries s on s.id = j.id where s.rate is not null"
    " order by t.user, t.account, t.application, t.node_count"
)


def refresh_history(db: sqlite3.Connection) -> None:
    """Computes the history of groups whose jobs changed, in one transaction."""
    if db.execute("select 1 from touched limit 1").fetchone() is None:
        return
    db.execute("begin immediate")
    try:
        db.execute(
            "delete from history where (user, account, application, node_count) in (select * from touched)"
        )
        for group, rows in itertools.groupby(db.execute(_RATES), key=lambda row: row[:4]):
            _write(db, group, [(row[4], row[5]) for row in rows])
        db.execute("delete from touched")
        db.execute("commit")
    finally:
        if db.in_transaction:
            db.execute("rollback")


def _write(db: sqlite3.Connection, group: tuple[object, ...], rates: list[tuple[int, float]]) -> None:
    if len(rates) < _MIN_RUNS:
        db.executemany("update summaries set ratio = null where id = ?", ((job,) for job, _ in rates))
        return
    low, median, high = np.quantile([rate for _, rate in rates], [0.1, 0.5, 0.9]).tolist()
    db.execute("insert into history values (?, ?, ?, ?, ?, ?, ?, ?)", (*group, len(rates), low, median, high))
    ratios = ((rate / median if median > 0 else None, job) for job, rate in rates)
    db.executemany("update summaries set ratio = ? where id = ?", ratios)
