"""Metrics derived from counter differences, by which peers are compared; one module per source."""
