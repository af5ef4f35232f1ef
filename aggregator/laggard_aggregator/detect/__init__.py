"""Detectors: window arrays in, scores and verdicts out. Pure numpy: no clock, no I/O."""
