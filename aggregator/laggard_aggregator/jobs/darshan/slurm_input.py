"""Slurm accounting for the store: text of `sacct -P` with its header, JSON of sacct, or pytokio's of steps.

Both of sacct's are read and settled as `laggard jobs import` does.

Times without a zone need one from the user: it is never guessed.
"""

import io
import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.jobs.darshan.tables import SLURM_JOB, SLURM_STEP
from laggard_aggregator.jobs.darshan.text_input import Rows
from laggard_aggregator.jobs.records.local_times import LocalTimes
from laggard_aggregator.jobs.records.model import ReadReport
from laggard_aggregator.jobs.records.settle import STEPS, settled_steps
from laggard_aggregator.jobs.records.sources.inputs import is_json, opened
from laggard_aggregator.jobs.records.sources.sacct_json import json_steps
from laggard_aggregator.jobs.records.sources.sacct_text import step_tables
from laggard_aggregator.status.formatting import counted
from laggard_common.errors import InputError

_MAX_JSON_BYTES: Final = 64 << 20
_ROWS_AT_ONCE: Final = 50_000
_PYTOKIO: Final = re.compile(rb"\s*\{\s*\"[0-9]")
"""Its objects are named by jobs and steps, those of sacct by words."""
_PYTOKIO_STEPS: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("raw_id", "job", "node_list", "start", "end")),
        ("node_count", pa.int64()),
    ]
)


def slurm_rows(path: Path, zone: str | None, skipped: list[str]) -> Rows:
    """Yields the tables `slurm_job` and `slurm_step` of a file, in portions.

    Adds a line for each reason why rows were left out to `skipped`. Raises InputError, also for a file of
    which all rows were.
    """
    times, report, count = LocalTimes(zone), ReadReport(), 0
    with opened(path, report.doubt) as file:
        for rows in _portions(file, times, report):
            count += rows.num_rows
            runs = settled_steps(rows)
            yield from _split(runs.filter(pc.is_valid(runs["start"])))
        if not count and report.named:
            raise InputError("", report.named[0])
    skipped += [f"{path}: {count} rows left out: {reason}" for reason, count in sorted(report.broken.items())]
    skipped += [f"{path}: {reason}" for reason in sorted(report.doubts)]
    skipped += [f"{path}: {named}" for named in report.named]
    if report.ambiguous:
        about = "with a local time that occurs twice, and no order or elapsed time that tells which"
        skipped.append(f"{path}: {counted(report.ambiguous, 'row')} {about}: taken as the first")


def _portions(file: io.BufferedReader, times: LocalTimes, report: ReadReport) -> Iterator[pa.Table]:
    """Yields rows of STEPS. Raises InputError."""
    if not is_json(file):
        yield from step_tables(file, times, report)
    elif _PYTOKIO.match(file.peek(64)[:64]):
        yield _pytokio_rows(file, times, report)
    else:
        rows = json_steps(file, report)
        while several := list(islice(rows, _ROWS_AT_ONCE)):
            yield pa.Table.from_pylist(several, schema=STEPS)


def _split(rows: pa.Table) -> Rows:
    """Rows of jobs, and of steps."""
    parts = pc.extract_regex(rows["raw_id"], r"^(?P<job>[0-9]+)(?P<dot>\.?)(?P<step>.*)$")
    step = pc.struct_field(parts, "step")
    columns = {
        "job_id": pc.struct_field(parts, "job").cast(pa.int64()),
        "step": step,
        "nodes": rows["node_list"],
        **{name: rows[name] for name in ("job", "user", "name", "state", "node_count")},
        **{
            f"{name}_us": pc.round(pc.multiply(rows[name], 1e6)).cast(pa.int64()) for name in ("start", "end")
        },
    }
    for table, schema, chosen in (
        ("slurm_job", SLURM_JOB, pc.equal(step, "")),
        ("slurm_step", SLURM_STEP, pc.not_equal(step, "")),
    ):
        own = pa.table([columns[name] for name in schema.names], names=schema.names)
        yield table, own.cast(schema).filter(chosen)


def _pytokio_rows(file: BinaryIO, times: LocalTimes, report: ReadReport) -> pa.Table:
    """Rows of STEPS: the steps of one job, as pytokio writes them."""
    text = file.read(_MAX_JSON_BYTES + 1)
    if len(text) > _MAX_JSON_BYTES:
        raise InputError("", "JSON of more than 64 MiB: expected the steps of one job")
    try:
        steps = list(_json_steps(json.loads(text)))
        rows = pa.Table.from_pylist(steps, schema=_PYTOKIO_STEPS)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, pa.ArrowException) as exc:
        expected = "expected steps with start, end and nodelist, as pytokio writes them"
        raise InputError("", f"{expected}: {exc}") from exc
    cells = {name: rows[name].combine_chunks() for name in ("start", "end")}
    stamps, doubtful, readable = times.columns(cells, pa.nulls(len(rows), pa.float64()))
    for at in pc.indices_nonzero(pc.invert(readable)).to_pylist():
        said = " to ".join(cells[name][at].as_py() for name in cells)
        report.leave_out(f"step {rows['raw_id'][at]}", "no times", said)
    report.ambiguous += pc.sum(pc.and_(doubtful, readable)).as_py() or 0
    columns = {name: rows[name] for name in rows.column_names} | stamps
    table = pa.table(
        [columns.get(name, pa.nulls(len(rows), STEPS.field(name).type)) for name in STEPS.names], schema=STEPS
    )
    return table.filter(readable)


def _json_steps(steps: Any) -> Iterator[dict[str, Any]]:
    for name, step in steps.items():
        nodes = [str(node) for node in step["nodelist"]]
        number = name.partition(".")[0]
        if not (number.isascii() and number.isdecimal() and len(number) <= 18):
            raise ValueError(f"no number of a job or step: {name[:40]!r}")
        yield {
            "raw_id": name,
            "job": number,
            "node_list": ",".join(nodes),
            "node_count": len(nodes),
            **{side: str(step[side]).strip() for side in ("start", "end")},
        }
