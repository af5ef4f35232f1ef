"""Collectors: one folder each, which registers itself; see `registry`."""
