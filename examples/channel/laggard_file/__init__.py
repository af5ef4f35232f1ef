"""Notifications appended to a file, a line each."""

NAME = "file"
