"""Values that no storage system has: left out, with a line about each kind; and those that are missing."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.offline.csv_times import LeftOut
from laggard_aggregator.status.formatting import counted

_MOST = 1e18
"""Larger values are none of a storage system, in any unit."""


class CheckedValues:
    """A column of numbers in the file at `path`: negative and absurd ones are missing.

    `complete`: every row is to have a value, and a line tells of those that have none.
    """

    def __init__(self, path: Path, name: str, *, complete: bool = False) -> None:
        self._where = f"{path}: {name}"
        self._missing = LeftOut() if complete else None
        self._left_out = {"below 0": LeftOut(), f"above {_MOST:.0e}": LeftOut()}

    def checked(self, values: FloatArray, row: int) -> FloatArray:
        """The values of the rows after `row`, NaN for those that are left out."""
        if self._missing is not None:
            self._missing.add(np.isnan(values), row)
        wrong = (values < 0, values > _MOST)
        for left_out, mask in zip(self._left_out.values(), wrong, strict=True):
            left_out.add(mask, row)
        return np.where(wrong[0] | wrong[1], np.nan, values)

    def remarks(self) -> Iterator[str]:
        """Lines about the values left out, and about missing ones."""
        if self._missing is not None and self._missing.count:
            some, first = counted(self._missing.count, "value"), self._missing.first
            yield f"{self._where}: {some} missing, the first in data row {first}"
        for kind, left_out in self._left_out.items():
            if left_out.count:
                some = counted(left_out.count, "value")
                yield f"{self._where}: {some} {kind} not judged, the first in data row {left_out.first}"
