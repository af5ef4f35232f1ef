"""Traces of jobs: folded records, merged blocks, I/O modes."""
