"""Phases of generated jobs against their truth: `python -m bench.jobs_phases`."""
