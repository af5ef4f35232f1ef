"""Engines that run one SQL text over the same Parquet files: DuckDB, embedded, and Spark."""

from laggard_aggregator.mining.engines.interface import SqlEngine
from laggard_aggregator.mining.store import MineStore
from laggard_common.errors import ConfigError

ENGINES = ("duckdb", "spark")

__all__ = ["ENGINES", "SqlEngine", "open_engine"]


def open_engine(store: MineStore, name: str = "duckdb", master: str | None = None) -> SqlEngine:
    """An engine over a store. `master`: of a Spark cluster, None for this machine. Raises LaggardError."""
    if name == "spark":
        from laggard_aggregator.mining.engines.spark import SparkEngine

        return SparkEngine(store, master)
    if name != "duckdb":
        raise ConfigError("", [f"engine: expected {' or '.join(ENGINES)}, got {name}"])
    if master is not None:
        raise ConfigError("", ["--master goes with --engine spark"])
    from laggard_aggregator.mining.engines.duck import DuckEngine

    return DuckEngine(store)
