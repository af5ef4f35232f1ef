"""Readers of recordings, one module a format; `open_recording` detects each file's format."""
