"""Beacon's rule: bandwidth below a share of the known peak for a time."""

BY_ITSELF = True
"""It judges components without peers and has a section of the configuration of its own."""
