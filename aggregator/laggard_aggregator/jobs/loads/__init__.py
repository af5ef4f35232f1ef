"""Loads of components and statistics over jobs."""
