"""The HotDep paper's detector: distances between vectors over functions against trained thresholds."""
