"""Laggard's own detector: calibrates itself on the group, needs no training."""
