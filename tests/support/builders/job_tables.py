"""Writes jobs, their nodes, components and summaries into an archive, as plain rows."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from laggard_aggregator.archive import layout
from laggard_aggregator.jobs import tables

JobRow = Mapping[str, Any]
DAY = 86_400.0
EPOCH = 1_763_596_800.0  # 2025-11-20


def job_row(raw_id: int, **changes: Any) -> dict[str, Any]:
    """A finished job of one hour on two nodes."""
    submit = changes.get("submit", int(EPOCH) + raw_id)
    row = {
        "job_key": f"c/{raw_id}/{submit}", "revision_at": 1, "cluster": "c", "raw_id": raw_id,
        "submit": submit, "sluid": "", "job": str(raw_id), "user": "alice", "account": "physics",
        "name": "run",
        "application": "app", "partition": "batch", "state": "COMPLETED", "source": "sacct",
        "start": float(submit), "end": submit + 3600.0, "node_count": 2,
    }  # fmt: skip
    return row | changes


def node_rows(job: JobRow, names: Sequence[str], **changes: Any) -> list[dict[str, Any]]:
    """Rows of `names`, held from the job's start to its end."""
    own = {name: job[name] for name in ("job_key", "revision_at", "start", "end", "source")}
    return [{**own, "node": name, "doubtful": False, **changes} for name in names]


def component_row(job: JobRow, component: str, layer: str = "server") -> dict[str, Any]:
    """Bytes that a component moved for a job."""
    own = {name: job[name] for name in ("job_key", "revision_at")}
    return {
        **own,
        "layer": layer,
        "node": "oss",
        "component": component,
        "direction": "read",
        "shared": False,
    }


def summary_row(job: JobRow, **values: Any) -> dict[str, Any]:
    """Summary of a job with these values, the others unknown."""
    return {name: job[name] for name in ("job_key", "revision_at")} | values


def write_rows(archive: Path, kind: str, rows: Sequence[JobRow], day: float = EPOCH, site: str = "s") -> Path:
    """Writes rows as one more file of a kind and day; returns its path."""
    schema: pa.Schema = {"jobs": tables.JOBS, **tables.OF_JOBS}[kind]
    date = datetime.fromtimestamp(day, UTC).date().isoformat()
    where = layout.folder(archive, kind, layout.OWN, date, site)
    number = layout.next_part(where)
    filled = [{field.name: row.get(field.name) for field in schema} for row in rows]
    table = pa.Table.from_pylist(filled, schema=schema)
    stamp = layout.stamp(int(day * 1e9) + layout.DAY_OPENS_NS)
    return layout.write_part(where, stamp, (number, number), schema, [table])
