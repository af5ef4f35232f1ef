"""Engines of the statistics over jobs: DuckDB in this process, or Spark over the same Parquet files.

Both are extras and are imported on use.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa

from laggard_aggregator.archive.table import Table, check_archive
from laggard_aggregator.jobs.engines import SqlEngine, is_spark
from laggard_aggregator.jobs.engines.duck import narrow, open_duck
from laggard_aggregator.jobs.engines.spark_session import close_session, first_lines, open_session
from laggard_aggregator.jobs.loads.statistics import REVISIONS, SUMMARIES
from laggard_aggregator.jobs.tables import OF_JOBS
from laggard_common.errors import InputError

_TABLES: Final = {"revisions": ("jobs", REVISIONS), "summaries": ("job_summaries", SUMMARIES)}
_DDL: Final = {pa.string(): "string", pa.float64(): "double", pa.int64(): "bigint"}


def open_statistics(directory: Path, name: str = "duckdb", master: str | None = None) -> SqlEngine:
    """An engine over the archive in `directory`. `master`: of a Spark cluster. Raises LaggardError."""
    return SparkStatistics(directory, master) if is_spark(name, master) else DuckStatistics(directory)


class DuckStatistics:
    """DuckDB over the files of an archive, as pyarrow reads them: with checks of pages."""

    def __init__(self, directory: Path) -> None:
        import duckdb

        self._error = duckdb.Error
        self._directory = directory
        check_archive(directory)
        self._opened, self._spill = open_duck()
        for table, (kind, columns) in _TABLES.items():
            self._opened.register(f"{kind}_files", Table(directory, kind).dataset(_plain(kind, columns)))
            listed = ", ".join(
                f'epoch_ns("{name}") as "{alias}"' if alias == "revision_at" else f'"{name}" as "{alias}"'
                for alias, name in columns.items()
            )
            self._opened.execute(f"create view {table} as select {listed} from {kind}_files")  # noqa: S608

    def register(self, name: str, table: pa.Table) -> None:
        """Makes `table` known under `name`."""
        self._opened.register(name, table)

    def query(self, sql: str) -> pa.Table:
        """The rows of a query. Raises InputError for damaged files."""
        try:
            return narrow(self._opened.sql(sql).to_arrow_table())
        except (self._error, OSError, pa.ArrowException, RuntimeError) as exc:
            raise InputError(str(self._directory), f"cannot be read: {first_lines(exc)}") from exc

    def close(self) -> None:
        """Ends the connection."""
        self._opened.close()
        self._spill.cleanup()


class SparkStatistics:
    """Spark over the files of an archive; a cluster needs the archive at the same path on each worker."""

    def __init__(self, directory: Path, master: str | None = None) -> None:
        from pyspark.errors import PySparkException

        self._error = PySparkException
        self._directory = directory
        check_archive(directory)
        files = {kind: Table(directory, kind).files() for kind, _ in _TABLES.values()}
        self._folder = TemporaryDirectory(prefix="laggard-jobs-")
        try:
            self._session: Any = open_session("laggard jobs", master, self._folder.name)
        except BaseException:
            self._folder.cleanup()
            raise
        self._session.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
        for table, (kind, columns) in _TABLES.items():
            schema = _plain(kind, columns)
            ddl = ", ".join(f"`{field.name}` {_DDL.get(field.type, 'bigint')}" for field in schema)
            paths = [_escaped(part.path) for part in files[kind]]
            read = self._session.read.schema(ddl)
            frame = read.parquet(*paths) if paths else self._session.createDataFrame([], ddl)
            frame = frame.selectExpr(*(f"`{name}` as `{alias}`" for alias, name in columns.items()))
            frame.createOrReplaceTempView(table)

    def register(self, name: str, table: pa.Table) -> None:
        """Makes `table`, of texts in a column `name`, known under `name`."""
        rows = [(text,) for text in table["name"].to_pylist()]
        self._session.createDataFrame(rows, "name string").createOrReplaceTempView(name)

    def query(self, sql: str) -> pa.Table:
        """The rows of a query. Raises InputError for damaged files."""
        try:
            return narrow(self._session.sql(sql).toArrow())
        except self._error as exc:
            raise InputError(str(self._directory), f"cannot be read: {first_lines(exc)}") from exc

    def close(self) -> None:
        """Ends the session and its Java process."""
        close_session(self._session)
        self._folder.cleanup()


def _plain(kind: str, columns: Mapping[str, str]) -> pa.Schema:
    """Columns of a kind, with texts that are no dictionaries."""
    fields = []
    for name in columns.values():
        type_ = OF_JOBS[kind].field(name).type
        fields.append(pa.field(name, pa.string() if pa.types.is_dictionary(type_) else type_))
    return pa.schema(fields)


def _escaped(path: Path) -> str:
    """A path of which no character is a pattern of Hadoop's."""
    return "".join(f"\\{char}" if char in "{}[]*?\\" else char for char in str(path.absolute()))
