"""Detectors: window arrays in, scores and verdicts out. Pure numpy: no clock, no I/O.

Each is a folder with `detector.py`, whose class registers itself; nothing lists them. `interface` has the
protocols, `registry` the declarations.
"""
