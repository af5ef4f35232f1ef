"""How often the detectors are right: on a simulation whose truth is known, and on real drives."""
