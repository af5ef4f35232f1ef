"""aggregator.toml as frozen dataclasses."""
