"""Spark over the same Parquet files: on this machine, or on the cluster of a master URL."""

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

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
from laggard_aggregator.jobs.engines.spark_session import close_session, first_lines, open_session
from laggard_common.errors import InputError

_DDL = {"int64": "bigint", "string": "string", "double": "double"}


class SparkEngine:
    """A Spark session over a store. Raises ServiceError without a Java runtime."""

    name = "spark"

    def __init__(self, store: MineStore, master: str | None = None) -> None:
        self._folder = TemporaryDirectory(prefix="laggard-mine-")  # Spark's default is the working directory
        try:
            self._session: Any = open_session("laggard mine", master, self._folder.name)
        except BaseException:
            self._folder.cleanup()
            raise
        try:
            with _input_errors(str(store.directory)):
                self._open(store)
        except InputError:
            self.close()
            raise

    def _open(self, store: MineStore) -> None:
        for table, schema in TABLES.items():
            files = [str(path) for path in store.files(table)]
            ddl = ", ".join(f"`{field.name}` {_DDL[str(field.type)]}" for field in schema)
            frame = (
                self._session.read.schema(ddl).parquet(*files)
                if files
                else self._session.createDataFrame([], ddl)
            )
            frame.createOrReplaceTempView(f"{table}_all" if table in OF_A_LOG else table)
            if table in OF_A_LOG:
                self._view(table, f"select * from {table}_all{log_filter(store)}")  # noqa: S608
        self._view("log_runs", LOG_RUNS_VIEW)
        self._view("job", JOB_VIEW)

    def query(self, sql: str) -> pa.Table:
        """The rows of a query; nothing but a query is run."""
        with _input_errors("query"):
            statement = sql.rstrip().removesuffix(";")  # as DuckDB reads it
            self._check(statement)
            return unique_names(self._session.sql(statement).toArrow())

    def register(self, name: str, table: pa.Table) -> None:
        """Makes `table` known under `name`."""
        self._session.createDataFrame(table).createOrReplaceTempView(name)

    def critical(self, intervals: str) -> pa.Table:
        """The critical path of each job, by the kernel in Spark's Python workers."""
        names = ", ".join(KERNEL_SCHEMA.names)
        ddl = ", ".join(f"{name} bigint" for name in KERNEL_SCHEMA.names)
        with _input_errors("query"):
            rows = self._session.sql(f"select {names} from ({intervals}) where end_us > start_us")  # noqa: S608
            return rows.groupBy("job_id").applyInArrow(critical_rows, ddl).toArrow()

    def close(self) -> None:
        """Ends the session and its Java process."""
        close_session(self._session)
        self._folder.cleanup()

    def _view(self, name: str, sql: str) -> None:
        self._session.sql(f"create or replace temp view {name} as {sql}")

    def _check(self, sql: str) -> None:
        """Analyses the statement as a table: Spark's `sql` would run any other statement at once."""
        self._session.sql(f"select * from (\n{sql}\n) where false")  # noqa: S608


@contextmanager
def _input_errors(place: str) -> Iterator[None]:
    """Raises Spark's errors as InputError: wrong SQL, or a file of the store that is damaged or gone."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as exc:
        raise InputError("", f"{place}: {first_lines(exc)}") from exc
