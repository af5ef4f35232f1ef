"""One collector a file: each reads one source of counters of this node."""
