"""The archive: Parquet files for any tool; docs/archive.md is the contract."""
