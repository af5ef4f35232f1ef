"""The ingest journal and the snapshots: log entries, codecs, group commit."""
