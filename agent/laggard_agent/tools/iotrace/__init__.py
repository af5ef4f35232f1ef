"""I/O traces of a compute node (Beacon, section 3.2): readers of three formats, and the fold."""

FORMAT_NAMES = ("laggard", "strace", "dxt")
