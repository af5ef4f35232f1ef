"""Spark over the same Parquet files: on this machine, or on the cluster of a master URL."""

import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from laggard_aggregator.mining.engines.interface import JOB_VIEW, KERNEL_SCHEMA, log_filter, one_line
from laggard_aggregator.mining.intervals import critical_path
from laggard_aggregator.mining.store import MineStore
from laggard_aggregator.mining.tables import OF_A_LOG, TABLES
from laggard_common.errors import InputError, ServiceError

_JAVA_SECONDS = 30
_DDL = {"int64": "bigint", "string": "string", "double": "double"}


class SparkEngine:
    """A Spark session over a store. Raises ServiceError without a Java runtime."""

    name = "spark"

    def __init__(self, store: MineStore, master: str | None = None) -> None:
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            raise ServiceError("Spark needs a Java runtime: apt install openjdk-17-jre-headless")
        from pyspark.sql import SparkSession

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        self._session: Any = (
            SparkSession.builder.appName("laggard mine")
            .master(master or "local[*]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.ansi.enabled", "true")
            .config("spark.sql.shuffle.partitions", "8")
            .config("spark.driver.bindAddress", "127.0.0.1" if master is None else "0.0.0.0")  # noqa: S104
            .config("spark.sql.execution.arrow.pyspark.enabled", "true")
            .getOrCreate()
        )
        for table, schema in TABLES.items():
            files = [str(path) for path in store.files(table)]
            ddl = ", ".join(f"`{each.name}` {_DDL[str(each.type)]}" for each in schema)
            frame = (
                self._session.read.schema(ddl).parquet(*files)
                if files
                else self._session.createDataFrame([], ddl)
            )
            frame.createOrReplaceTempView(f"{table}_all" if table in OF_A_LOG else table)
            if table in OF_A_LOG:
                self._view(table, f"select * from {table}_all{log_filter(store)}")  # noqa: S608
        self._view("job", JOB_VIEW)

    def query(self, sql: str) -> pa.Table:
        """The rows of a query."""
        return self._guarded(lambda: self._session.sql(sql).toArrow())

    def register(self, name: str, table: pa.Table) -> None:
        """Makes `table` known under `name`."""
        self._session.createDataFrame(table).createOrReplaceTempView(name)

    def critical(self, intervals: str) -> pa.Table:
        """The critical path of each job, by the kernel in Spark's Python workers."""
        names = ", ".join(KERNEL_SCHEMA.names)
        rows = self._session.sql(f"select {names} from ({intervals}) where end_us > start_us")  # noqa: S608
        ddl = ", ".join(f"{name} bigint" for name in KERNEL_SCHEMA.names)
        return self._guarded(lambda: rows.groupBy("job_id").applyInArrow(_critical, ddl).toArrow())

    def close(self) -> None:
        """Ends the session and its Java process."""
        from pyspark import SparkContext

        gateway = SparkContext._gateway
        self._session.stop()
        if gateway is None:
            return
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
        java = getattr(gateway, "proc", None)
        if java is not None:
            java.stdin.close()
            java.wait(_JAVA_SECONDS)

    def _view(self, name: str, sql: str) -> None:
        self._session.sql(f"create or replace temp view {name} as {sql}")

    def _guarded(self, run: Callable[[], pa.Table]) -> pa.Table:
        from pyspark.errors import PySparkException

        try:
            return run()
        except PySparkException as exc:
            raise InputError("", f"query: {one_line(exc)}") from exc


def _critical(rows: pa.Table) -> pa.Table:
    """The kernel over one job. It runs in Spark's workers, which need Laggard installed."""
    rows = rows.sort_by([(name, "ascending") for name in ("start_us", "file_id", "rank", "log")])
    columns = {name: rows[name].to_numpy() for name in KERNEL_SCHEMA.names}
    path = critical_path(columns["start_us"], columns["end_us"])
    chosen = {name: columns[name][path.place] for name in ("job_id", "log", "file_id", "rank")}
    return pa.table({**chosen, "start_us": path.start, "end_us": path.end}, schema=KERNEL_SCHEMA)
