"""Engines that run one SQL text over the same Parquet files: DuckDB, embedded, and Spark. Both are extras."""

from typing import Final, Protocol

import pyarrow as pa

from laggard_common.errors import ConfigError

ENGINES: Final = ("duckdb", "spark")


class SqlEngine(Protocol):
    """Runs SQL over tables. Errors of the SQL and of damaged files are InputError, one line."""

    def query(self, sql: str) -> pa.Table:
        """The rows of a query."""

    def register(self, name: str, table: pa.Table) -> None:
        """Makes `table` known under `name`."""

    def close(self) -> None:
        """Ends the engine."""


def is_spark(name: str, master: str | None) -> bool:
    """Whether an engine is Spark, else it is DuckDB. Raises ConfigError for another one, or a master without.

    `master`: of a Spark cluster, None for this machine.
    """
    if name not in ENGINES:
        raise ConfigError("", [f"engine: expected {' or '.join(ENGINES)}, got {name}"])
    if name != "spark" and master is not None:
        raise ConfigError("", ["--master goes with --engine spark"])
    return name == "spark"
