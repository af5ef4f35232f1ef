"""Lustre's counters on clients, OSS and MDS; see README.md."""
