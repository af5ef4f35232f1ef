"""File systems of IBM Storage Scale (GPFS) on this node, and its waiters, by a report that root writes."""
