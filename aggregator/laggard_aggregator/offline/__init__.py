"""Offline analysis: CSV, sysstat activity files and archives as peer groups, judged by the same machine."""
