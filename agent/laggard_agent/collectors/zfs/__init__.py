"""Pools, datasets and vdevs of ZFS: kstats, and a report that root writes."""
