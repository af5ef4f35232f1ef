"""DuckDB: embedded, the default."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa

from laggard_aggregator.jobs.darshan.engines.interface import (
    JOB_VIEW,
    KERNEL_SCHEMA,
    LOG_RUNS_VIEW,
    critical_rows,
    log_filter,
    unique_names,
)
from laggard_aggregator.jobs.darshan.store import MineStore
from laggard_aggregator.jobs.darshan.tables import OF_A_LOG, TABLES
from laggard_aggregator.jobs.engines.duck import narrow, open_duck
from laggard_aggregator.jobs.engines.spark_session import first_lines
from laggard_common.errors import InputError

_ROWS_AT_ONCE: Final = 1 << 19


class DuckEngine:
    """A connection of its own over a store; SQL may read the store and nothing else of the machine."""

    name = "duckdb"

    def __init__(self, store: MineStore) -> None:
        self._opened, self._spill = open_duck()
        try:
            with _input_errors(str(store.directory)):
                self._open(store)
        except InputError:
            self.close()
            raise

    def _open(self, store: MineStore) -> None:
        directory = Path(self._spill.name) / "store"  # names in `read_parquet` are patterns, links are not
        directory.symlink_to(store.directory.resolve())
        for table, schema in TABLES.items():
            files = [directory / path.relative_to(store.directory) for path in store.files(table)]
            if not files:
                self._opened.register(table, schema.empty_table())
                continue
            where = log_filter(store) if table in OF_A_LOG else ""
            listed = ", ".join(_quoted(str(path)) for path in files)
            source = f"read_parquet([{listed}], hive_partitioning = false)"
            self._opened.execute(f"create view {table} as select * from {source}{where}")  # noqa: S608
        self._opened.execute(f"create view log_runs as {LOG_RUNS_VIEW}")
        self._opened.execute(f"create view job as {JOB_VIEW}")
        self._opened.execute(f"set allowed_directories = [{_quoted(str(directory))}]")
        self._opened.execute("set enable_external_access = false")
        self._opened.execute("set lock_configuration = true")

    def query(self, sql: str) -> pa.Table:
        """The rows of a query; nothing but a query is run."""
        with _input_errors("query"):
            self._check(sql)
            return narrow(unique_names(self._opened.sql(sql).to_arrow_table()))

    def register(self, name: str, table: pa.Table) -> None:
        """Makes `table` known under `name`."""
        self._opened.register(name, table)

    def critical(self, intervals: str) -> pa.Table:
        """The critical path of each job; rows come sorted from the engine, in portions of whole jobs."""
        with _input_errors("query"):
            return self._critical(intervals)

    def _critical(self, intervals: str) -> pa.Table:
        names = KERNEL_SCHEMA.names
        columns = ", ".join(names)
        sql = f"select {columns} from ({intervals}) where end_us > start_us order by job_id, start_us"  # noqa: S608
        critical: list[pa.Table] = []
        waiting: list[pa.Table] = []
        for batch in self._opened.sql(sql).to_arrow_reader(_ROWS_AT_ONCE):
            part = pa.Table.from_batches([batch])
            jobs = part["job_id"].to_numpy()
            at = int(np.searchsorted(jobs, jobs[-1])) if len(part) else 0  # the last job may go on
            if at:
                critical.append(critical_rows(pa.concat_tables([*waiting, part.slice(0, at)])))
                waiting = []
            waiting.append(part.slice(at))
        if waiting:
            critical.append(critical_rows(pa.concat_tables(waiting)))
        return pa.concat_tables(critical) if critical else KERNEL_SCHEMA.empty_table()

    def close(self) -> None:
        """Ends the connection."""
        self._opened.close()
        self._spill.cleanup()

    def _check(self, sql: str) -> None:
        statements = duckdb.extract_statements(sql)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise InputError("", "query: expected one select statement")


@contextmanager
def _input_errors(place: str) -> Iterator[None]:
    """Raises DuckDB's errors as InputError: wrong SQL, or a file of the store that is damaged or gone."""
    try:
        yield
    except (duckdb.Error, RuntimeError) as exc:
        raise InputError("", f"{place}: {first_lines(exc)}") from exc


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
