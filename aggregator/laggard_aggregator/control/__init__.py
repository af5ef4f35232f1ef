"""Operators' requests: the control socket, checks, storage and audit log."""
