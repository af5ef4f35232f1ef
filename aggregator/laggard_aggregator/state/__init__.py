"""What survives a crash: the ingest journal, snapshots, and how a restart makes one state of both."""
