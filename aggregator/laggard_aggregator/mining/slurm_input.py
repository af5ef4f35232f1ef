"""Slurm accounting: text of `sacct -P` with its header line, or pytokio's JSON of one job's steps.

Times without a zone need one from the user: it is never guessed.
"""

import csv
import gzip
import io
import json
from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from laggard_aggregator.mining.tables import SLURM_JOB, SLURM_STEP
from laggard_common.errors import InputError

_MAX_BYTES: Final = 4 << 30
_NONE: Final = ("", "Unknown", "None", "None assigned", "N/A")
_GZIP: Final = b"\x1f\x8b"


def slurm_tables(path: Path, zone: str | None = None) -> dict[str, pa.Table]:
    """The tables `slurm_job` and `slurm_step` from a file. Raises InputError."""
    text = file_text(path)
    stamps = ZonedTimes(path, zone)
    rows = list(
        _json_rows(path, text, stamps) if text.lstrip()[:1] == "{" else _sacct_rows(path, text, stamps)
    )
    return {
        "slurm_job": pa.Table.from_pylist([row for row in rows if not row["step"]], schema=SLURM_JOB),
        "slurm_step": pa.Table.from_pylist([row for row in rows if row["step"]], schema=SLURM_STEP),
    }


def file_text(path: Path) -> str:
    """Text of a file, also of a gzip-compressed one. Raises InputError."""
    with InputError.from_os_errors(path):
        raw = path.read_bytes()
    try:
        if raw.startswith(_GZIP):
            with gzip.open(io.BytesIO(raw)) as file:
                raw = file.read(_MAX_BYTES + 1)
    except (OSError, EOFError) as exc:
        raise InputError(str(path), f"damaged: {exc}") from exc
    if len(raw) > _MAX_BYTES:
        raise InputError(str(path), "larger than 4 GiB")
    return raw.decode("utf-8", "replace")


class ZonedTimes:
    """Times of a file, in microseconds since the epoch. Raises InputError for one without a zone, unless
    `zone` has it."""

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
        """Epoch seconds, or ISO 8601; None for a time that is not known yet."""
        if text in _NONE:
            return None
        try:
            return round(float(text) * 1e6)
        except ValueError:
            pass
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise InputError(str(self._path), f"expected a time, got {text[:40]!r}") from None
        if found.tzinfo is None:
            if self._zone is None:
                raise InputError(
                    str(self._path), f"times without a zone, such as {text}: say theirs with --timezone ZONE"
                )
            found = found.replace(tzinfo=self._zone)
        return round(found.timestamp() * 1e6)


def _json_rows(path: Path, text: str, stamps: ZonedTimes) -> Iterator[dict[str, Any]]:
    try:
        steps = json.loads(text)
        for name, each in steps.items():
            nodes = each["nodelist"]
            yield _row(
                path,
                name,
                (stamps.micros(each["start"]), stamps.micros(each["end"])),
                len(nodes),
                nodes=",".join(nodes),
                cells={},
            )
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise InputError(
            str(path), f"expected steps with start, end and nodelist, as pytokio writes them: {exc}"
        ) from exc


def _sacct_rows(path: Path, text: str, stamps: ZonedTimes) -> Iterator[dict[str, Any]]:
    separator = "\x1f" if "\x1f" in text.partition("\n")[0] else "|"
    lines = csv.reader(io.StringIO(text), delimiter=separator, quoting=csv.QUOTE_NONE)
    header = next(lines, [])
    place = {name: at for at, name in enumerate(header)}
    missing = [name for name in ("Start", "End", "NodeList") if name not in place]
    if "JobIDRaw" not in place and "JobID" not in place:
        missing.insert(0, "JobIDRaw")
    if missing:
        raise InputError(str(path), f"its first line is no header of sacct -P with {', '.join(missing)}")
    for cells in lines:
        if len(cells) != len(header) and not (len(cells) == len(header) + 1 and not cells[-1]):
            continue  # a name with a separator shifts the columns, so none of them can be trusted
        row = {name: cells[at] for name, at in place.items()}
        nodes = row["NodeList"] if row["NodeList"] not in _NONE else ""
        count = row.get("NNodes") or row.get("AllocNodes") or ""
        found = _row(
            path,
            row.get("JobIDRaw") or row["JobID"],
            (stamps.micros(row["Start"]), stamps.micros(row["End"])),
            int(count) if count.isdigit() else None,
            nodes=nodes,
            cells=row,
        )
        if found["start_us"] is not None:
            yield found


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
    if not number.isdigit():
        raise InputError(
            str(path), f"expected the number of a job or step, got {name[:40]!r}; ask sacct for JobIDRaw"
        )
    return {
        "job_id": int(number),
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
