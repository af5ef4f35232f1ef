"""DuckDB: embedded, the default."""

from tempfile import TemporaryDirectory
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from laggard_aggregator.mining.engines.interface import JOB_VIEW, KERNEL_SCHEMA, log_filter, one_line
from laggard_aggregator.mining.intervals import critical_path
from laggard_aggregator.mining.store import MineStore
from laggard_aggregator.mining.tables import OF_A_LOG, TABLES
from laggard_common.errors import InputError

_MEMORY: Final = "1GB"
_ROWS_AT_ONCE: Final = 1 << 19


class DuckEngine:
    """A connection of its own over a store; SQL may read the store and nothing else of the machine."""

    name = "duckdb"

    def __init__(self, store: MineStore) -> None:
        self._spill = TemporaryDirectory(prefix="laggard-mine-")  # DuckDB's default is the working directory
        self._opened: Any = duckdb.connect(
            ":memory:", config={"memory_limit": _MEMORY, "temp_directory": self._spill.name}
        )
        for table, schema in TABLES.items():
            files = store.files(table)
            if not files:
                self._opened.register(table, schema.empty_table())
                continue
            where = log_filter(store) if table in OF_A_LOG else ""
            listed = ", ".join(_quoted(str(path)) for path in files)
            source = f"read_parquet([{listed}], hive_partitioning = false)"
            self._opened.execute(f"create view {table} as select * from {source}{where}")  # noqa: S608
        self._opened.execute(f"create view job as {JOB_VIEW}")
        self._opened.execute(f"set allowed_directories = [{_quoted(str(store.directory.absolute()))}]")
        self._opened.execute("set enable_external_access = false")
        self._opened.execute("set lock_configuration = true")

    def query(self, sql: str) -> pa.Table:
        """The rows of a query; nothing but a query is run."""
        try:
            self._check(sql)
            return _narrow(self._opened.sql(sql).to_arrow_table())
        except (duckdb.Error, RuntimeError) as exc:
            raise InputError("", f"query: {one_line(exc)}") from exc

    def register(self, name: str, table: pa.Table) -> None:
        """Makes `table` known under `name`."""
        self._opened.register(name, table)

    def critical(self, intervals: str) -> pa.Table:
        """The critical path of each job; rows come sorted from the engine, in portions of whole jobs."""
        names = KERNEL_SCHEMA.names
        columns = ", ".join(names)
        order = "job_id, start_us, file_id, rank, log"
        sql = f"select {columns} from ({intervals}) where end_us > start_us order by {order}"  # noqa: S608
        found: list[pa.Table] = []
        waiting: list[pa.Table] = []
        for batch in self._opened.sql(sql).to_arrow_reader(_ROWS_AT_ONCE):
            part = pa.Table.from_batches([batch])
            jobs = part["job_id"].to_numpy()
            at = int(np.searchsorted(jobs, jobs[-1])) if len(part) else 0  # the last job may go on
            if at:
                found.append(_critical(pa.concat_tables([*waiting, part.slice(0, at)])))
                waiting = []
            waiting.append(part.slice(at))
        if waiting:
            found.append(_critical(pa.concat_tables(waiting)))
        return pa.concat_tables(found) if found else KERNEL_SCHEMA.empty_table()

    def close(self) -> None:
        """Ends the connection."""
        self._opened.close()
        self._spill.cleanup()

    def _check(self, sql: str) -> None:
        statements = duckdb.extract_statements(sql)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise InputError("", "query: expected one select statement")


def _critical(rows: pa.Table) -> pa.Table:
    columns = {name: rows[name].to_numpy() for name in KERNEL_SCHEMA.names}
    path = critical_path(columns["start_us"], columns["end_us"], columns["job_id"])
    chosen = {name: columns[name][path.place] for name in ("job_id", "log", "file_id", "rank")}
    return pa.table({**chosen, "start_us": path.start, "end_us": path.end}, schema=KERNEL_SCHEMA)


def _narrow(table: pa.Table) -> pa.Table:
    """Sums as int64 where they fit: DuckDB's are of 128 bits."""
    for at, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type) and field.type.scale == 0:
            table = table.set_column(at, field.name, table[field.name].cast(pa.int64()))
    return table


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
