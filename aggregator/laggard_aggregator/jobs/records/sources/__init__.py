"""Readers of the formats of schedulers."""
