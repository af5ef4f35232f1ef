"""Times slower, by the values of one window; imports nothing heavy, as commands need it."""

from math import isfinite, nan
from typing import Protocol

DIFFERENT = 0.1
"""Factors of the latest window and on average that differ by less are shown as one."""


class Figures(Protocol):
    """The figures of a component in its latest window."""

    @property
    def observed(self) -> float:
        """The component's value."""

    @property
    def reference(self) -> float:
        """Its peers' value."""

    @property
    def severity(self) -> float:
        """Times slower on average, NaN where the detector has no ratio."""


def quotient(observed: float, reference: float, worse: int = 1) -> float:
    """Times slower; NaN where a value is unknown or not above 0.

    `worse`: 1 where more is worse, -1 where less is; 0, as neither is: the larger of both ways.
    """
    if not (isfinite(observed) and isfinite(reference) and min(observed, reference) > 0):
        return nan
    ratio = observed / reference
    return max(ratio, 1 / ratio) if worse == 0 else float(ratio**worse)


def factor_now(figures: Figures, worse: int = 1) -> float:
    """Times slower in the latest window, by its own values; NaN where the detector has no ratio."""
    return quotient(figures.observed, figures.reference, worse) if isfinite(figures.severity) else nan
