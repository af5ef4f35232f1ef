"""Persistence, stragglers and alarms from verdicts."""
