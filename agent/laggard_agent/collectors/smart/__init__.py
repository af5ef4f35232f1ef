"""Errors of disks by SMART and NVMe's health log, by a report of smartctl that root writes."""
