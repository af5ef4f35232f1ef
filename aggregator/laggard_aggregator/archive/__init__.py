"""The Parquet archive: the contract that later tools build on."""
