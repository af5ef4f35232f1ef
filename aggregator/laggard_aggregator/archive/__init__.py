"""The archive: Parquet that the aggregator writes and any tool may read. docs/archive.md is the contract."""
