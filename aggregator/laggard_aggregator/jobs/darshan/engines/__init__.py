"""Engines that run one SQL text over the same Parquet files: DuckDB, embedded, and Spark."""

from laggard_aggregator.jobs.darshan.engines.interface import LogEngine
from laggard_aggregator.jobs.darshan.store import MineStore
from laggard_aggregator.jobs.engines import is_spark

__all__ = ["LogEngine", "open_engine"]


def open_engine(store: MineStore, name: str = "duckdb", master: str | None = None) -> LogEngine:
    """An engine over a store. `master`: of a Spark cluster, None for this machine. Raises LaggardError."""
    if is_spark(name, master):
        from laggard_aggregator.jobs.darshan.engines.spark import SparkEngine

        return SparkEngine(store, master)
    from laggard_aggregator.jobs.darshan.engines.duck import DuckEngine

    return DuckEngine(store)
