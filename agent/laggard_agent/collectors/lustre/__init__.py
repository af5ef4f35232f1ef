"""Lustre's counters on clients, OSS and MDS; see docs/collectors/lustre.md."""
