"""Command lines: `laggard-aggregator` and `laggard` with its subcommands."""
