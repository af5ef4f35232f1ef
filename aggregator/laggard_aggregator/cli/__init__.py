"""Command lines: `laggard-aggregator`, `laggard demo | diagnose | train | top`."""
