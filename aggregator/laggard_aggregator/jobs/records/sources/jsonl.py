"""Neutral metadata for any scheduler: `jobs.jsonl`, one JSON object a line; docs/jobs.md has its keys."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

from laggard_aggregator.jobs.records.local_times import LocalTimes
from laggard_aggregator.jobs.records.model import JobDataError, ReadReport
from laggard_aggregator.jobs.records.sources.values import (
    cluster_name,
    identifier,
    integer,
    node_list,
    seconds,
    state,
    text,
)
from laggard_common.errors import InputError

MAX_LINE_BYTES: Final = 4 << 20
_WORDS: Final = {
    "CANCELED": "CANCELLED",
    "DONE": "COMPLETED",
    "EXIT": "FAILED",
    "EXITED": "FAILED",
    "QUEUED": "PENDING",
    "HELD": "PENDING",
    "FINISHED": "COMPLETED",
    "OOM": "OUT_OF_MEMORY",
}


def jsonl_records(
    file: BinaryIO, cluster: str, _times: LocalTimes, report: ReadReport
) -> Iterator[Mapping[str, Any]]:
    """Yields a record for each line; broken lines are counted and named. Raises InputError for an array."""
    is_first = True
    for number, line in enumerate(bounded_lines(file), 1):
        if not line.strip():
            continue
        if is_first and line.lstrip().startswith(b"["):
            raise InputError("", "a JSON array, expected one JSON object a line, as jq -c '.[]' prints it")
        is_first = False
        try:
            yield record_of(_parsed(line), cluster)
        except JobDataError as exc:
            report.leave_out(f"line {number}", str(exc), line[:100].decode("utf-8", "replace"))


def bounded_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yields lines; of an overlong one only its beginning, which no parser accepts."""
    while line := file.readline(MAX_LINE_BYTES):
        yield line
        while line and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE_BYTES)


def record_of(record: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """The record of one object. Raises JobDataError."""
    submit = seconds(record.get("submit"))
    name = record.get("job", record.get("id"))
    shown = text(name) or str(integer(name) or "")
    if submit is None or not shown:
        raise JobDataError("no job, or no time of submission")
    raw = integer(record.get("raw_id"))
    own = text(record.get("sluid"))
    if raw is None:
        plain = shown.isascii() and shown.isdecimal() and len(shown) < 18
        raw = int(shown) if plain else 0
        own = own or ("" if plain else f"{identifier(shown)}@{int(submit)}")
    return {
        "cluster": cluster_name(record.get("cluster"), cluster),
        "raw_id": raw,
        "submit": int(submit),
        "sluid": identifier(own) if own else "",
        "restarts": _small(record.get("restarts")),
        "job": shown,
        **{key: integer(record.get(key)) for key in ("array_job", "array_task", "het_job", "het_offset")},
        **{key: text(record.get(key)) for key in ("user", "account", "name", "application")},
        "partition": text(record.get("partition")) or text(record.get("queue")),
        "state": state(record.get("state"), _WORDS),
        **{key: integer(record.get(key)) for key in ("uid", "exit_code", "node_count", "tasks", "cpus")},
        **{key: seconds(record.get(key)) for key in ("eligible", "start", "end", "modified")},
        "exclusive": _truth(record.get("exclusive")),
        "doubtful": _truth(record.get("doubtful")),
        "node_list": node_list(record.get("nodes")),
        "source": "jsonl",
    }


def _parsed(line: bytes) -> Mapping[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise JobDataError("no JSON") from None
    if not isinstance(record, Mapping):
        raise JobDataError("no object")
    return record


def _small(value: Any) -> int | None:
    count = integer(value)
    if count is not None and not 0 <= count < 1 << 31:
        raise JobDataError(f"expected a count of restarts, got {count}")
    return count


def _truth(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None
