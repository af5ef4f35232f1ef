"""NFS client statistics of each mount, from /proc/self/mountstats."""
