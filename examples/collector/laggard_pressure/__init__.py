"""Pressure stall information of a node: `/proc/pressure/io`."""
