"""Pools, datasets and vdevs of ZFS: kstats, and a report of what only root may ask."""
