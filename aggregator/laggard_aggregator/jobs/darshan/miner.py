"""The Python interface: the paper's operations on a store, chained; each step wraps one SQL text.

from laggard_aggregator.jobs.darshan import Mine
mine = Mine("/data/store")
jobs = mine.load("darshan_job")
small = jobs.project("job_id", "bytes_written").filter("bytes_written < 1GB")
with_nodes = jobs.join(mine.load("slurm_job"), "job_id").project("job_id", "node_count", "bytes_written")
factors = jobs.filter("bytes_written > 10GB").extract_perf_factors("0", "1GB", "write")
"""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa

from laggard_aggregator.jobs.darshan.engines import LogEngine, open_engine
from laggard_aggregator.jobs.darshan.job_list import JobFilter, job_list
from laggard_aggregator.jobs.darshan.store import MineStore
from laggard_aggregator.jobs.darshan.tables import DIRECTIONS, TABLES
from laggard_common.errors import ConfigError

_ALIASES: Final = {"slurm": "slurm_job"}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SIZE: Final = re.compile(r"(?<![\w'.])(\d+(?:\.\d+)?)\s?([KMGTP])(i?)B(?:/s)?\b")
_POWERS: Final = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5}

Row = dict[str, Any]


def size_bytes(text: str) -> float:
    """Bytes of `0`, `10MB` (decimal), `1GiB/s` (binary). Raises ConfigError."""
    stripped = text.strip()
    match = _SIZE.fullmatch(stripped)
    if match:
        return _bytes(match)
    try:
        value = float(stripped.removesuffix("/s").removesuffix("B"))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ConfigError("", [f"expected a size such as 10MB or 1GiB/s, got {text[:40]}"])
    return value


class Mine:
    """A store, opened with an engine. Raises LaggardError."""

    def __init__(self, store: str | Path, engine: str = "duckdb", master: str | None = None) -> None:
        self.store = MineStore(Path(store))
        self.engine: LogEngine = open_engine(self.store, engine, master)
        self._numbers = itertools.count()

    def load(self, table: str) -> "MineRows":
        """The rows of a table of the store; `slurm` stands for `slurm_job`, `job` for whole jobs."""
        name = _ALIASES.get(table, table)
        if name not in {*TABLES, "job"}:
            raise ConfigError("", [f"expected a table of {', '.join([*TABLES, 'job'])}, got {table}"])
        return MineRows(self, f"select * from {name}")  # noqa: S608 - one of the tables

    def query(self, sql: str) -> pa.Table:
        """The rows of a query."""
        return self.engine.query(sql)

    def keep(self, table: pa.Table) -> "MineRows":
        """Rows made outside of the engine."""
        name = f"kept_{next(self._numbers)}"
        self.engine.register(name, table)
        return MineRows(self, f"select * from {name}")  # noqa: S608

    def close(self) -> None:
        """Ends the engine."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()


class MineRows:
    """Rows of a query that runs when they are asked for. Every operation returns other rows."""

    def __init__(self, mine: Mine, sql: str) -> None:
        self._mine = mine
        self.sql = sql

    def filter(self, condition: str) -> "MineRows":
        """The rows for which a condition holds; sizes may have units: `bytes_written < 1GB`."""
        return self._wrapped("*", f"where {_with_bytes(condition)}")

    def project(self, *columns: str) -> "MineRows":
        """Some columns, or expressions with `as`."""
        return self._wrapped(", ".join(columns))

    def sort(self, *columns: str) -> "MineRows":
        """Ordered by columns, each with `desc` where it falls; nulls last."""
        order = ", ".join(f"{column} nulls last" for column in columns)
        return self._wrapped("*", f"order by {order}")

    def limit(self, count: int) -> "MineRows":
        """The first rows."""
        return self._wrapped("*", f"limit {int(count)}")

    def group(
        self, key: str, function: Callable[[list[Row]], Any] | None = None, **aggregates: str
    ) -> "MineRows":
        """One row a group. `aggregates`: SQL expressions. `function`: of a group's rows, gives `value`."""
        if function is None:
            listed = ", ".join([key, *(f"{sql} as {_name(name)}" for name, sql in aggregates.items())])
            return self._wrapped(listed, f"group by {key}")
        groups: dict[Any, list[Row]] = {}
        for row in self:
            groups.setdefault(row[key], []).append(row)
        values = [{key: group_key, "value": function(rows)} for group_key, rows in groups.items()]
        return self._mine.keep(pa.Table.from_pylist(values))

    def join(self, other: "MineRows", on: str, how: str = "inner") -> "MineRows":
        """Pairs of rows with equal values of the column `on`; `how`: inner, left, full."""
        if how not in ("inner", "left", "full"):
            raise ConfigError("", [f"join: expected inner, left or full, got {how}"])
        mine, theirs = self.columns(), [name for name in other.columns() if name != on]
        shown = [f"a.{name}" for name in mine if name != on or how != "full"]
        shown += [f"coalesce(a.{on}, b.{on}) as {on}"] if how == "full" else []
        shown += [f"b.{name} as {name}_2" if name in mine else f"b.{name}" for name in theirs]
        sql = f"select {', '.join(shown)} from ({self.sql}) a {how} join ({other.sql}) b on a.{on} = b.{on}"  # noqa: S608
        return MineRows(self._mine, sql)

    def percentile(
        self, column: str, percents: Sequence[float] = tuple(range(0, 101, 10))
    ) -> list[tuple[float, float]]:
        """Exact values of a column at percentages of the rows, interpolated."""
        curve = ", ".join(
            f"percentile_cont({float(percent) / 100}) within group (order by {column}) as p{at}"
            for at, percent in enumerate(percents)
        )
        row = self._wrapped(curve).table().to_pylist()[0]
        return [(float(percent), row[f"p{at}"]) for at, percent in enumerate(percents)]

    def bin(self, name: str, function: Callable[[Any], Any], column: str) -> "MineRows":
        """A further column `name`: the value of a function of `column`."""
        table = self.table()
        values = [function(value) for value in table[column].to_pylist()]
        return self._mine.keep(table.append_column(_name(name), pa.array(values)))

    def map(self, function: Callable[[Row], Row]) -> "MineRows":
        """Each row by a function."""
        return self._mine.keep(pa.Table.from_pylist([function(row) for row in self]))

    def extract_perf_factors(self, low: str, high: str, direction: str) -> "MineRows":
        """Contributing factors of those of these jobs with a bandwidth of `low` to `high` (Algorithm 1)."""
        if direction not in DIRECTIONS:
            raise ConfigError("", [f"direction: expected read or write, got {direction}"])
        listed = job_list(self._mine.engine, JobFilter(direction, size_bytes(low), size_bytes(high)))
        jobs = set(self.project("job_id").table()["job_id"].to_pylist())
        kept = [job in jobs for job in listed["job_id"].to_pylist()]
        return self._mine.keep(listed.filter(pa.array(kept, pa.bool_())))

    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self._wrapped("*", "limit 0").table().column_names)

    def table(self) -> pa.Table:
        """The rows as an Arrow table."""
        return self._mine.query(self.sql)

    def rows(self) -> list[Row]:
        """The rows as dictionaries."""
        return list(self.table().to_pylist())

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows())

    def _wrapped(self, columns: str, rest: str = "") -> "MineRows":
        return MineRows(self._mine, f"select {columns} from ({self.sql}) t {rest}".rstrip())  # noqa: S608


def _with_bytes(condition: str) -> str:
    """Sizes with units as numbers of bytes, outside of quotes."""
    parts = condition.split("'")
    parts[::2] = [_SIZE.sub(lambda match: str(int(_bytes(match))), part) for part in parts[::2]]
    return "'".join(parts)


def _bytes(match: re.Match[str]) -> float:
    return float(match[1]) * (1024.0 if match[3] else 1000.0) ** _POWERS[match[2]]


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ConfigError("", [f"expected a name of a column, got {text[:40]!r}"])
    return text
