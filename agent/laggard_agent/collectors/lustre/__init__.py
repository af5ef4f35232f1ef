"""Lustre's counters on clients, OSS and MDS, as docs/collectors/lustre.md tells."""
