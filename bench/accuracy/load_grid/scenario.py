"""A scenario: a seeded generator of series, how it is judged, and where its figures stand in the table."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bench.accuracy.load_grid.device import Random
from bench.accuracy.load_grid.series import Series

OPERATIONS = ("operations",)
ALL_LOADS = ("operations", "throughput", "request_bytes", "read_share")
Seeds = Literal["tuning", "reporting"]
FIRST_SEED = {"tuning": 500_000, "reporting": 600_000}
"""Seeds of a kind are apart from those of other benches, and from each other."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Seconds of the detection interval, intervals of a window, and from window to window."""

    interval_seconds: float
    samples: int
    shift: int

    @property
    def shift_seconds(self) -> float:
        """Time from one window's end to the next one's."""
        return self.shift * self.interval_seconds


HALF_MINUTES = Windows(30.0, 30, 15)
QUARTER_MINUTES = Windows(15.0, 60, 30)
"""The product's default; both last 15 minutes."""
SECONDS = Windows(1.0, 60, 30)


@dataclass(frozen=True, slots=True)
class Scenario:
    """`name` is unique and sorts into a table: `row` and `column` name the place of its figures.

    `make(rng)` gives the series; the same generator gives the same series. `drawn_by`: names that agree draw
    the same numbers, so that a fault can be compared with its absence. `loads`: those handed to the detector.
    """

    row: str
    column: str
    make: Callable[[Random], Series]
    windows: Windows = HALF_MINUTES
    loads: tuple[str, ...] = ALL_LOADS
    drawn_by: str = ""
    quick: bool = False
    tries: int = 1

    @property
    def name(self) -> str:
        """`row/column`."""
        return f"{self.row}/{self.column}"

    def series(self, seed: int, seeds: Seeds = "tuning") -> Series:
        """The series of the `seed`-th try."""
        key = zlib.crc32((self.drawn_by or self.row).encode())
        return self.make(np.random.default_rng([FIRST_SEED[seeds] + seed, key]))
