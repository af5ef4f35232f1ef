"""Multi-layer event traces (Lu & Shen): readers, matching, characteristics, bottom-up search, report."""
