"""The daemon's loops: ingest, windows, housekeeping, results, watchdog."""
