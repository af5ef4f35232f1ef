"""Deterministic simulation of a site: agents, broker, aggregator, disks and clocks in one process."""
