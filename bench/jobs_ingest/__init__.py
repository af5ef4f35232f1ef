"""Ingest of generated sacct records."""
