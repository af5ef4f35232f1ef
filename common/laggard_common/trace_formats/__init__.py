"""Formats of I/O traces that the agent folds and `laggard layers` analyses: one parser each."""
