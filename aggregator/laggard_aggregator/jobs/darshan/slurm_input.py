"""Slurm accounting: text of `sacct -P` with its header line, or pytokio's JSON of one job's steps.

Times without a zone need one from the user: it is never guessed.
"""

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from laggard_aggregator.jobs.darshan.tables import SLURM_JOB, SLURM_STEP
from laggard_aggregator.jobs.darshan.text_input import Rows, file_lines, portions
from laggard_common.errors import InputError

_MAX_JSON_CHARS: Final = 64 << 20
_MAX_SECONDS: Final = 1e11
_MAX_DIGITS: Final = 18
_NONE: Final = ("", "Unknown", "None", "None assigned", "N/A")


def slurm_rows(path: Path, zone: str | None, skipped: list[str]) -> Rows:
    """Yields the tables `slurm_job` and `slurm_step` of a file, in portions. Raises InputError.

    Adds a line on rows that were left out to `skipped`.
    """
    stamps = ZonedTimes(path, zone)
    lines = file_lines(path)
    first = next(lines, "")
    is_json = first.lstrip()[:1] == "{"
    every = itertools.chain([first], lines)
    rows = _json_rows(path, every, stamps) if is_json else _sacct_rows(path, every, stamps, skipped)
    named = (("slurm_step" if row["step"] else "slurm_job", row) for row in rows)
    yield from portions(named, {"slurm_job": SLURM_JOB, "slurm_step": SLURM_STEP})


class ZonedTimes:
    """Times of a file. Raises InputError for one without a zone, unless `zone` has it."""

    def __init__(self, path: Path, zone: str | None) -> None:
        self._path = path
        self._zone: tzinfo | None = None
        if zone is not None:
            try:
                self._zone = ZoneInfo(zone)
            except (ZoneInfoNotFoundError, ValueError, OSError) as exc:
                raise InputError(
                    "", f"--timezone: {zone}: no such time zone, expected one such as America/Los_Angeles"
                ) from exc

    def micros(self, text: str) -> int | None:
        """Microseconds since the epoch, of epoch seconds or ISO 8601; None for a time not known yet."""
        if text in _NONE:
            return None
        try:
            seconds = float(text)
        except ValueError:
            seconds = self._iso(text)
        if not math.isfinite(seconds) or abs(seconds) > _MAX_SECONDS:
            raise self._no_time(text)
        return round(seconds * 1e6)

    def _iso(self, text: str) -> float:
        try:
            found = datetime.fromisoformat(text)
            if found.tzinfo is None:
                if self._zone is None:
                    reason = f"times without a zone, such as {text}: say theirs with --timezone ZONE"
                    raise InputError(str(self._path), reason)
                found = found.replace(tzinfo=self._zone)
            return found.timestamp()
        except (ValueError, OverflowError):
            raise self._no_time(text) from None

    def _no_time(self, text: str) -> InputError:
        return InputError(str(self._path), f"expected a time, got {text[:40]!r}")


def _json_rows(path: Path, lines: Iterator[str], stamps: ZonedTimes) -> Iterator[dict[str, Any]]:
    parts, count = [], 0
    for line in lines:
        parts.append(line)
        count += len(line)
        if count > _MAX_JSON_CHARS:
            raise InputError(str(path), "JSON of more than 64 MiB: expected the steps of one job")
    try:
        for name, each in json.loads("\n".join(parts)).items():
            nodes = [str(node) for node in each["nodelist"]]
            times = stamps.micros(str(each["start"])), stamps.micros(str(each["end"]))
            yield _row(path, name, times, len(nodes), nodes=",".join(nodes), cells={})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise InputError(
            str(path), f"expected steps with start, end and nodelist, as pytokio writes them: {exc}"
        ) from exc


def _sacct_rows(
    path: Path, lines: Iterator[str], stamps: ZonedTimes, skipped: list[str]
) -> Iterator[dict[str, Any]]:
    first = next(lines, "")
    separator = "\x1f" if "\x1f" in first else "|"
    header = first.split(separator)
    place = {name: at for at, name in enumerate(header)}
    missing = [name for name in ("Start", "End", "NodeList") if name not in place]
    if "JobIDRaw" not in place and "JobID" not in place:
        missing.insert(0, "JobIDRaw")
    if missing:
        raise InputError(str(path), f"its first line is no header of sacct -P with {', '.join(missing)}")
    shifted = 0
    for line in lines:
        cells = line.split(separator)
        if len(cells) != len(header) and not (len(cells) == len(header) + 1 and not cells[-1]):
            shifted += bool(line)  # a separator within a name shifts the columns: none can be trusted
            continue
        row = {name: cells[at] for name, at in place.items()}
        nodes = row["NodeList"] if row["NodeList"] not in _NONE else ""
        found = _row(
            path,
            row.get("JobIDRaw") or row["JobID"],
            (stamps.micros(row["Start"]), stamps.micros(row["End"])),
            _count(row.get("NNodes") or row.get("AllocNodes") or ""),
            nodes=nodes,
            cells=row,
        )
        if found["start_us"] is not None:
            yield found
    if shifted:
        skipped.append(f"{path}: {shifted} lines with another number of columns than the header")


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None


def _row(
    path: Path,
    name: str,
    times: tuple[int | None, int | None],
    count: int | None,
    *,
    nodes: str,
    cells: Mapping[str, str],
) -> dict[str, Any]:
    number, _, step = name.partition(".")
    job = _count(number)
    if job is None:
        raise InputError(
            str(path), f"expected the number of a job or step, got {name[:40]!r}; ask sacct for JobIDRaw"
        )
    return {
        "job_id": job,
        "job": cells.get("JobID", number),
        "user": cells.get("User", ""),
        "name": cells.get("JobName", ""),
        "state": cells.get("State", ""),
        "start_us": times[0],
        "end_us": times[1],
        "node_count": count,
        "nodes": nodes,
        "step": step,
    }
