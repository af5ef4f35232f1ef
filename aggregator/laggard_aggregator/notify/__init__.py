"""Notifications about persistent stragglers: dispatcher, outbox, and one folder for each channel.

A new one needs `<name>/channel.py` with one class, as `channel` says, its `NAME` in `<name>/__init__.py`,
and `sample.toml`.
"""
