"""The time column of a CSV file: epoch seconds, ms, us or ns, or ISO 8601 with or without a zone.

One file has one form; a row in another is an error. Times without a zone are UTC unless another one is given.
"""

import re
from contextlib import suppress
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from laggard_aggregator.offline.sample_grid import NS
from laggard_aggregator.status.formatting import counted, zoned
from laggard_common.errors import InputError

MISSING = np.iinfo(np.int64).min
"""The value of a time that no sample can have: before 1970 or after 2261."""
_LAST_NS = 9.2e18
_UNITS = (("s", 0.0, 1e11, NS), ("ms", 1e11, 1e14, 10**6), ("us", 1e14, 1e17, 1000), ("ns", 1e17, np.inf, 1))
"""Units, the numbers that are times in them (as seconds 1e11 would lie after the year 5000), and their ns."""
_ZONE = re.compile(r"(Z|[+-]\d\d(:?\d\d)?)$")
_EARLIEST = 631_152_000
"""1990, in epoch seconds: times before are likely no times of samples."""


class LeftOut:
    """Rows of a file that are not judged: how many, and the first, counted from 1."""

    def __init__(self) -> None:
        self.count = 0
        self.first = 0

    def add(self, mask: NDArray[np.bool_], row: int) -> None:
        """Adds those in `mask`, of the rows after `row`."""
        if mask.any():
            self.first = self.first or row + 1 + int(mask.argmax())
            self.count += int(mask.sum())


class TimeColumn:
    """Converts the times of the file at `path`, a batch at a time."""

    def __init__(self, path: Path, zone: ZoneInfo | None = None) -> None:
        self._path = path
        self._zone = zone.key if zone is not None else "UTC"
        self._form = ""
        self._unit = _UNITS[0]
        self._first_ns = MISSING
        self._outside = LeftOut()

    def parse(self, texts: pa.Array, row: int) -> NDArray[np.int64]:
        """Times in ns since the epoch of the rows after `row`, or MISSING. Raises InputError."""
        if texts.null_count:
            place = int(np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False))[0])
            raise InputError(str(self._path), f"time column: empty in data row {row + place + 1}")
        if not self._form:
            self._form = _form(texts[0].as_py())
        with suppress(pa.ArrowInvalid):
            return self._checked(self._converted(texts, row), row)
        for place, text in enumerate(texts.to_pylist()):
            form = _form(text)
            if form and self._form and form != self._form:
                raise self._error(text, row + place, f"is {form}, the rows before have {self._form}")
            try:
                self._converted(texts[place : place + 1], row + place)
            except pa.ArrowInvalid:
                raise self._error(text, row + place) from None
        raise AssertionError("each row of the batch is a time, but not the batch")

    def remarks(self) -> list[str]:
        """Lines about times that are unlikely or were left out."""
        lines = []
        if self._outside.count:
            lines.append(
                f"{self._path}: {counted(self._outside.count, 'row')} not judged, with a time before "
                f"1970 or after 2261, the first in data row {self._outside.first}"
            )
        if self._unit != _UNITS[0]:
            lines.append(f"{self._path}: times are read as {self._unit[0]} since the epoch")
        if self._first_ns != MISSING and self._first_ns < _EARLIEST * NS:
            begin = zoned(max(self._first_ns / NS, 1.0))
            lines.append(f"{self._path}: times begin at {begin}: are they seconds since the epoch?")
        return lines

    def _converted(self, texts: pa.Array, row: int) -> NDArray[np.int64]:
        """Times in ns. Raises ArrowInvalid on another form than the file's, InputError on another unit."""
        if self._form == "a number":
            return self._numbers(pc.cast(texts, pa.float64()).to_numpy(zero_copy_only=False), row)
        times = pc.cast(texts, pa.timestamp("ns", tz="UTC" if self._form == "a time with a zone" else None))
        if self._form == "a time without a zone" and self._zone != "UTC":
            times = pc.assume_timezone(times, self._zone, ambiguous="earliest", nonexistent="latest")
        return np.asarray(pc.cast(times, pa.int64()).to_numpy(zero_copy_only=False), np.int64)

    def _numbers(self, values: NDArray[np.float64], row: int) -> NDArray[np.int64]:
        sizes = np.abs(values)
        if not np.isfinite(sizes).all():
            raise pa.ArrowInvalid("not finite")
        if row == 0:
            self._unit = next(unit for unit in _UNITS if sizes[0] < unit[2])
        name, least, below, ns = self._unit
        wrong = (sizes < least) | (sizes >= below)
        if wrong.any():
            place = int(wrong.argmax())
            raise self._error(
                f"{values[place]:.17g}", row + place, f"is not in {name}, as the rows before are"
            )
        whole = np.floor(values)
        inside = (values >= 0) & (values * ns < _LAST_NS)
        with np.errstate(invalid="ignore"):
            times = whole.astype(np.int64) * ns + np.round((values - whole) * ns).astype(np.int64)
        return np.where(inside, times, MISSING)

    def _checked(self, times: NDArray[np.int64], row: int) -> NDArray[np.int64]:
        outside = times < 0
        if outside.any():
            self._outside.add(outside, row)
            times = np.where(outside, MISSING, times)
        if not outside.all():
            first = int(times[~outside].min())
            self._first_ns = first if self._first_ns == MISSING else min(self._first_ns, first)
        return times

    def _error(self, text: str, row: int, problem: str = "") -> InputError:
        if not problem:
            return InputError(
                str(self._path),
                f"time column: data row {row + 1}: expected epoch seconds or ISO 8601, got {text[:40]!r}",
            )
        return InputError(str(self._path), f"time column: data row {row + 1}: {text[:40]!r} {problem}")


def _form(text: str) -> str:
    """The form of a time, empty when it is none."""
    with suppress(ValueError):
        float(text)
        return "a number"
    if not re.match(r"\d{4}-\d\d-\d\d", text):
        return ""
    return "a time with a zone" if _ZONE.search(text[10:]) else "a time without a zone"
