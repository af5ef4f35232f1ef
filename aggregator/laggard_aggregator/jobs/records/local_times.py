"""Times of accounting records: epoch seconds, ISO 8601 with an offset, or local times of a named zone.

A local time of the hour that occurs twice at the end of summer time is settled by the order of the record's
times and its elapsed seconds. Where these do not decide, the earlier one is kept and said to be doubtful.
"""

import itertools
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from laggard_common.errors import ConfigError, InputError

_NONE: Final = pa.array(["", "Unknown", "None", "N/A", "0"])
_EPOCH: Final = r"^[0-9]{1,11}(\.[0-9]{1,9})?$"
_SPACED: Final = r"^([0-9]{4}-[0-9]{2}-[0-9]{2}) "
_LOCAL: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?$"
_WHOLE: Final = len("2026-01-01T00:00:00")
_ORDER: Final = ("submit", "eligible", "start", "end")


class LocalTimes:
    """Times of one input. `zone`: that of times without an offset; None refuses them.

    Raises ConfigError for an unknown zone.
    """

    def __init__(self, zone: str | None = None) -> None:
        self._zone = zone
        if zone is not None:
            try:
                ZoneInfo(zone)
            except (ZoneInfoNotFoundError, ValueError, OSError) as exc:
                expected = "no such time zone, expected one such as Europe/Berlin"
                raise ConfigError("", [f"--timezone: {zone}: {expected}"]) from exc

    def columns(
        self, cells: Mapping[str, pa.Array], elapsed: pa.Array
    ) -> tuple[dict[str, pa.Array], pa.Array, pa.Array]:
        """Seconds since the epoch by name, which rows are doubtful, and which have readable times only.

        Raises InputError for times without an offset and without a zone.
        """
        early: dict[str, NDArray[np.float64]] = {}
        late: dict[str, NDArray[np.float64]] = {}
        count = len(elapsed)
        valid, twice = np.ones(count, bool), np.zeros(count, bool)
        for name, texts in cells.items():
            early[name], late[name], good = self._seconds(texts)
            valid &= good
            twice |= early[name] != late[name]
        twice &= valid & ~_same(early, late)
        doubtful = np.zeros(count, bool)
        durations = elapsed.to_numpy(zero_copy_only=False)
        for at in np.flatnonzero(twice):
            chosen, sure = _settle({n: (early[n][at], late[n][at]) for n in cells}, durations[at])
            doubtful[at] = not sure
            for name, value in chosen.items():
                early[name][at] = value
        stamps = {name: pa.array(value, mask=np.isnan(value)) for name, value in early.items()}
        return stamps, pa.array(doubtful), pa.array(valid)

    def in_order(self, texts: Sequence[str]) -> tuple[list[int | None], int]:
        """Microseconds since the epoch of times that only go on, and how many of them are doubtful.

        Their order settles the hour that occurs twice: its second pass begins where the clock goes back, or
        behind the longest pause where it does not. Doubtful are those that both hours fit. None for text that
        is no time. Raises InputError for times without an offset and without a zone.
        """
        early, late, good = self._seconds(pa.array([text.strip() for text in texts], pa.string()))
        twice = good & (early != late) & ~np.isnan(early)
        doubtful = 0
        edges = np.flatnonzero(np.diff(twice, prepend=False, append=False))
        for low, high in edges.reshape(-1, 2).tolist():
            chosen, is_sure = _second_pass(early, late, low, high)
            early[chosen:high] = late[chosen:high]
            doubtful += 0 if is_sure else high - low
        known = good & ~np.isnan(early)
        return [
            round(at * 1e6) if is_known else None for at, is_known in zip(early.tolist(), known, strict=True)
        ], doubtful

    def _seconds(self, cells: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
        """Earlier and later reading of each cell, NaN for unknown, and which cells can be read."""
        cells = pc.replace_substring_regex(cells, _SPACED, r"\1T")
        known = np.asarray(pc.invert(pc.is_in(cells, _NONE)))
        epoch = np.asarray(pc.match_substring_regex(cells, _EPOCH)) & known
        plain = pc.if_else(pa.array(epoch), cells, None).cast(pa.float64())
        early: NDArray[np.float64] = plain.to_numpy(zero_copy_only=False).copy()
        late = early.copy()
        good = epoch | ~known
        local = np.asarray(pc.match_substring_regex(cells, _LOCAL)) & ~good
        if local.any():
            where = np.flatnonzero(local)
            for values, ambiguous in ((early, "earliest"), (late, "latest")):
                values[where] = self._zoned(cells.take(pa.array(where)), ambiguous)
            good[where] = ~np.isnan(early[where])
        for at in np.flatnonzero(~good):
            early[at] = late[at] = _iso(cells[at].as_py())
            good[at] = not np.isnan(early[at])
        return early, late, good

    def _zoned(self, cells: pa.Array, ambiguous: str) -> NDArray[Any]:
        """Seconds of local times, NaN for those that no calendar has."""
        if self._zone is None:
            raise InputError(
                "", f"has times without a zone, such as {cells[0]}: name theirs with --timezone ZONE"
            )
        whole = pc.utf8_slice_codeunits(cells, 0, _WHOLE)
        parts = pc.binary_join_element_wise("0", pc.utf8_slice_codeunits(cells, _WHOLE), "")
        local = pc.strptime(whole, "%Y-%m-%dT%H:%M:%S", "s", error_is_null=True)
        zoned = pc.assume_timezone(local, self._zone, ambiguous=ambiguous, nonexistent="latest")
        seconds: NDArray[Any] = (
            zoned.cast(pa.int64()).cast(pa.float64()).to_numpy(zero_copy_only=False).copy()
        )
        seconds += parts.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return seconds


def _second_pass(
    early: NDArray[np.float64], late: NDArray[np.float64], low: int, high: int
) -> tuple[int, bool]:
    """Where in [low, high) the hour passes for the second time, and whether that is sure.

    `high`: it does not; all times are of the first pass.
    """
    back = np.flatnonzero(np.diff(early[low:high]) < 0)
    if back.size:
        return low + int(back[0]) + 1, back.size == 1
    before = early[low - 1] if low else np.nan
    after = early[high] if high < early.size else np.nan
    pauses = []
    for second in range(low, high + 1):
        times = [before, *early[low:second], *late[second:high], after]
        steps = np.diff([time for time in times if not np.isnan(time)])
        pauses.append((float(steps.max()) if steps.size else 0.0, -second))
    least = min(pauses)
    return -least[1], sum(pause == least[0] for pause, _ in pauses) == 1


def _same(early: Mapping[str, NDArray[np.float64]], late: Mapping[str, NDArray[np.float64]]) -> Any:
    """Rows each of whose times has one reading, or none at all."""
    pairs = [(early[name] == late[name]) | np.isnan(early[name]) for name in early]
    return np.logical_and.reduce(pairs)


def _iso(text: str) -> float:
    """Seconds of an ISO 8601 time with an offset; NaN for other text."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.timestamp() if moment.tzinfo is not None else float("nan")
    except (ValueError, OverflowError):
        return float("nan")


def _settle(readings: Mapping[str, tuple[float, float]], elapsed: float) -> tuple[dict[str, float], bool]:
    """The only readings in order and with the elapsed time; the earliest and False if there are several."""
    names = [name for name in _ORDER if name in readings and not np.isnan(readings[name][0])]
    fitting = []
    for values in itertools.product(*(sorted(set(readings[name])) for name in names)):
        chosen = dict(zip(names, values, strict=True))
        runs = {"start", "end"} <= chosen.keys() and not np.isnan(elapsed)
        lasted = chosen["end"] - chosen["start"] if runs else 0.0
        ordered = all(a <= b for a, b in itertools.pairwise(values))
        if ordered and (not runs or abs(lasted - elapsed) <= 1):
            fitting.append(chosen)
    if fitting:
        return fitting[0], len(fitting) == 1
    return {name: readings[name][0] for name in names}, False
