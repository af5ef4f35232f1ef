"""Counters that a Prometheus server has already, for `laggard diagnose --prometheus`."""
