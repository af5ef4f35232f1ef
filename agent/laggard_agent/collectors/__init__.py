"""Collectors: one folder for each, whose class registers itself.

A new one needs `<name>/collector.py` with a class as `registry.CollectorClass` says, `sample.toml` and
`README.md`, and `compare.toml` where its components are compared by means or shares of counters.
"""
