"""Errors of disks and of the links to them."""
