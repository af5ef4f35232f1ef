"""Notifications about persistent stragglers: dispatcher, outbox, and one folder for each channel."""
