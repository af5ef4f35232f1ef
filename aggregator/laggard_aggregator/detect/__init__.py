"""Detectors: window arrays in, scores and verdicts out. Pure numpy: no clock, no I/O.

Each is a folder with `detector.py`, whose class registers itself; nothing lists them. `interface` has the
protocols, `registry` the declarations.
"""

LEVEL_OF_GROUPS, OWN_PAST = "group", "own past"
"""Level of alarms on whole groups, and the name of the values that these are held against."""
LEVEL_OF_SPLITS, OTHER_SIDE = "split", "other side"
"""Likewise of alarms on one side of a group that falls into two."""
