"""Counters by time and by minute."""
