"""Slurm accounting for the store: text of `sacct -P` with its header, or pytokio's JSON of a job's steps.

Times without a zone need one from the user: it is never guessed.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.jobs.darshan.tables import SLURM_JOB, SLURM_STEP
from laggard_aggregator.jobs.darshan.text_input import Rows
from laggard_aggregator.jobs.records.local_times import LocalTimes
from laggard_aggregator.jobs.records.model import ReadReport
from laggard_aggregator.jobs.records.sources.inputs import is_json, opened
from laggard_aggregator.jobs.records.sources.sacct_text import STEPS, step_tables
from laggard_common.errors import InputError

_MAX_JSON_BYTES: Final = 64 << 20
_NO_NODES: Final = ("", "Unknown", "None", "None assigned", "N/A")


def slurm_rows(path: Path, zone: str | None, skipped: list[str]) -> Rows:
    """Yields the tables `slurm_job` and `slurm_step` of a file, in portions.

    Adds a line for each reason why rows were left out to `skipped`. Raises InputError, also for a file of
    which all rows were.
    """
    times, report, count = LocalTimes(zone), ReadReport(), 0
    with opened(path) as file:
        is_json_file = is_json(file)
        for rows in [_json_rows(file, times)] if is_json_file else step_tables(file, times, report):
            count += rows.num_rows
            yield from _split(rows.filter(pc.is_valid(rows["start"])))
        if not count and report.named:
            raise InputError("", report.named[0])
    skipped += [f"{path}: {count} rows left out: {reason}" for reason, count in sorted(report.broken.items())]
    skipped += [f"{path}: {reason}" for reason in sorted(report.doubts)]


def _split(rows: pa.Table) -> Rows:
    """Rows of jobs, and of steps."""
    parts = pc.extract_regex(rows["raw_id"], r"^(?P<job>[0-9]+)(?P<dot>\.?)(?P<step>.*)$")
    step = pc.struct_field(parts, "step")
    nodes = pc.if_else(pc.is_in(rows["node_list"], pa.array(_NO_NODES)), "", rows["node_list"])
    columns = {
        "job_id": pc.struct_field(parts, "job").cast(pa.int64()),
        "step": step,
        "nodes": nodes,
        **{name: rows[name] for name in ("job", "user", "name", "state", "node_count")},
        **{f"{name}_us": _micros(rows[name]) for name in ("start", "end")},
    }
    for table, schema, chosen in (
        ("slurm_job", SLURM_JOB, pc.equal(step, "")),
        ("slurm_step", SLURM_STEP, pc.not_equal(step, "")),
    ):
        own = pa.table([columns[name] for name in schema.names], names=schema.names)
        yield table, own.cast(schema).filter(chosen)


def _micros(seconds: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.round(pc.multiply(seconds, 1e6)).cast(pa.int64())


def _json_rows(file: BinaryIO, times: LocalTimes) -> pa.Table:
    """The steps of one job, as pytokio writes them."""
    text = file.read(_MAX_JSON_BYTES + 1)
    if len(text) > _MAX_JSON_BYTES:
        raise InputError("", "JSON of more than 64 MiB: expected the steps of one job")
    try:
        return pa.Table.from_pylist(list(_json_steps(json.loads(text), times)), schema=STEPS)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, pa.ArrowException) as exc:
        expected = "expected steps with start, end and nodelist, as pytokio writes them"
        raise InputError("", f"{expected}: {exc}") from exc


def _json_steps(steps: Any, times: LocalTimes) -> Iterator[dict[str, Any]]:
    for name, step in steps.items():
        nodes = [str(node) for node in step["nodelist"]]
        start, end = times.micros([str(step["start"]), str(step["end"])])
        number = name.partition(".")[0]
        if not (number.isascii() and number.isdecimal() and len(number) <= 18):
            raise ValueError(f"no number of a job or step: {name[:40]!r}")
        yield {
            "raw_id": name,
            "job": number,
            "user": "",
            "name": "",
            "state": "",
            "node_list": ",".join(nodes),
            "node_count": len(nodes),
            "start": None if start is None else start / 1e6,
            "end": None if end is None else end / 1e6,
        }
