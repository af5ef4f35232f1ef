"""Block-layer counters of /proc/diskstats."""
