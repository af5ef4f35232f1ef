"""`laggard layers received`: the recordings that nodes sent, and the candidate of each."""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from laggard_aggregator.archive.documents import LAYERS
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.files.atomic_write import written
from laggard_aggregator.layers.send import REPORTS
from laggard_aggregator.status.formatting import iso
from laggard_aggregator.status.text_table import TableColumn, terminal_width, text_table
from laggard_common.errors import InputError
from laggard_common.visible import visible

_COLUMNS = (
    TableColumn("recording"),
    TableColumn("node"),
    TableColumn("received", dispensable=1),
    TableColumn("requests", right=True),
    TableColumn("candidate"),
)


@dataclass(frozen=True, slots=True)
class ReceivedRecording:
    """A recording of one node. `requests`: received so far; `sent`: by its report, None before that came."""

    recording: str
    node: str
    received: float
    requests: int
    sent: int | None
    findings: tuple[dict[str, Any], ...]


def run(args: argparse.Namespace) -> int:
    """Prints the recordings in an archive; returns 0. Raises LaggardError."""
    recordings = received(ArchiveReader(args.archive), args.recording)
    if args.recording and not recordings:
        raise InputError(str(args.archive), f"has no recording {visible(args.recording)}")
    with written(args.output) if args.output else nullcontext(sys.stdout) as output:
        width, has_details = terminal_width(output), bool(args.recording)
        lines = _json(recordings) if args.json else _lines(recordings, has_details, width)
        output.writelines(f"{visible(line)}\n" for line in lines)
    return 0


def received(archive: ArchiveReader, recording: str = "") -> list[ReceivedRecording]:
    """The recordings, or those of one name, in the order of their names and nodes.

    A document that came twice counts once.
    """
    requests = _requests(archive, recording)
    reports: dict[tuple[str, str], tuple[float, dict[str, Any]]] = {}
    for row in _rows(archive.table("events", REPORTS, ["node", "received", "content"])):
        report = report_of(row["content"])
        if report is not None and recording in ("", report["recording"]):
            reports[report["recording"], row["node"]] = row["received"].timestamp(), report
    return [
        ReceivedRecording(
            *key,
            received=max(requests.get(key, (0.0, 0))[0], reports[key][0] if key in reports else 0.0),
            requests=requests.get(key, (0.0, 0))[1],
            sent=reports[key][1]["requests"] if key in reports else None,
            findings=tuple(reports[key][1]["findings"]) if key in reports else (),
        )
        for key in sorted(requests.keys() | reports.keys())
    ]


def _requests(archive: ArchiveReader, recording: str) -> dict[tuple[str, str], tuple[float, int]]:
    """Time of the last document and number of distinct requests, by recording and node."""
    table = archive.table("events", LAYERS, ["recording", "node", "received", "depth", "request"])
    if not table.num_rows:
        return {}
    for name in ("recording", "node"):  # Arrow does not group by dictionaries that differ
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(pa.string()))
    if recording:
        table = table.filter(pa.compute.equal(table["recording"], recording))
    key = ["recording", "node", "depth", "request"]
    distinct = table.group_by(key).aggregate([("received", "max")])
    counts = distinct.group_by(["recording", "node"]).aggregate([("received_max", "max"), ([], "count_all")])
    return {
        (row["recording"], row["node"]): (row["received_max_max"].timestamp(), row["count_all"])
        for row in _rows(counts)
    }


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows with times in microseconds, which Python has."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_timestamp(column.type):
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, column.cast(pa.timestamp("us", tz="UTC"), safe=False))
    yield from table.to_pylist()


def report_of(content: bytes) -> dict[str, Any] | None:
    """The report in a document; None where it is none: any process at a node may send one."""
    try:
        report = json.loads(content)
        return {
            "recording": str(report["recording"]),
            "requests": int(report["requests"]),
            "findings": [
                {name: str(record[name]) for name in ("candidate", "kind", "text", "advice")}
                for record in report["records"]
                if record["record"] == "finding"
            ],
        }
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _json(recordings: list[ReceivedRecording]) -> Iterator[str]:
    for recording in recordings:
        yield json.dumps(
            {
                "record": "received",
                "recording": recording.recording,
                "node": recording.node,
                "received": recording.received,
                "requests": recording.requests,
                "sent": recording.sent,
                "findings": list(recording.findings),
            }
        )


def _lines(recordings: list[ReceivedRecording], details: bool, width: int | None) -> Iterator[str]:
    if not recordings:
        yield "No recordings were received. On a node: laggard layers send RECORDING"
        return
    yield from text_table(_COLUMNS, [_row(recording) for recording in recordings], width)
    for recording in recordings if details else ():
        for finding in recording.findings:
            yield ""
            yield f"{recording.node}: {finding['candidate']} ({finding['kind']})"
            yield f"  {finding['text']} {finding['advice']}"


def _row(part: ReceivedRecording) -> tuple[str, ...]:
    if part.sent is None:
        candidate = "report not yet received"
    else:
        candidate = part.findings[0]["candidate"] if part.findings else "none"
    sent = "" if part.sent in (None, part.requests) else f" of {part.sent:,}"
    return part.recording, part.node, iso(part.received), f"{part.requests:,}{sent}", candidate
