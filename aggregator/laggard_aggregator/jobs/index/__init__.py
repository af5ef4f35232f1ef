"""The hot index of jobs in SQLite."""
