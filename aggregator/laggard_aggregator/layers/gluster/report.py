"""Report of a volume's counters: records, and tables for a terminal.

These are totals, not events: no streams, no concurrency.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from laggard_aggregator.layers.gluster.counters import DATA, GlusterFinding
from laggard_aggregator.layers.gluster.volume import Volume
from laggard_aggregator.status.text_table import TableColumn, text_table

_NOT_COUNTED = (
    "streams",
    "runs",
    "max_request_bytes",
    "mean_concurrency",
    "mean_concurrency_busy",
    "max_concurrency",
    "busy_seconds",
    "mib_per_second_busy",
    "admit_issue_us",
    "issue_complt_us",
    "complt_callback_us",
    "unmatched_ratio",
)
"""Characteristics that totals do not tell, null in the records."""


def records(volume: Volume, findings: Sequence[GlusterFinding]) -> Iterator[dict[str, Any]]:
    """Records of the layers, findings and remarks, with the names of those of traces."""
    for layer in volume.layers:
        yield {
            "record": "layer",
            **dict.fromkeys(_NOT_COUNTED),
            "layer": layer.layer,
            "device": layer.name,
            "requests": layer.calls,
            "bytes": layer.bytes,
            "mean_request_bytes": None if layer.bytes is None else layer.bytes / max(layer.calls, 1),
            "mean_residence_us": layer.mean_ns / 1000,
            "read_us": layer.fops.get("READ", (0, 0.0))[1] / 1000,
            "write_us": layer.fops.get("WRITE", (0, 0.0))[1] / 1000,
            **{f"{fop.lower()}_held_us": layer.held[fop] / 1000 for fop in DATA if fop in layer.held},
        }
    for finding in findings:
        yield {
            "record": "finding",
            "candidate": finding.candidate,
            "kind": "slow",
            "share": finding.share,
            "text": finding.text,
            "advice": finding.advice,
        }
    for remark in volume.remarks:
        yield {"record": "remark", "text": remark}


def report_lines(volume: Volume, findings: Sequence[GlusterFinding], width: int | None) -> Iterator[str]:
    """The report for a terminal: the candidates in sentences, then the table and remarks."""
    if not findings:
        yield "No candidate: no brick is slower than its peers, and no layer holds most of a slow call."
    for finding in findings:
        yield f"Candidate: {finding.candidate} (slow)"
        yield f"  {finding.text}"
        yield f"  {finding.advice}"
    yield ""
    columns = (
        TableColumn("layer"),
        TableColumn("name"),
        TableColumn("reads + writes", right=True),
        TableColumn("MiB", right=True, dispensable=1),
        TableColumn("read ms", right=True),
        TableColumn("write ms", right=True),
        TableColumn("held, read ms", right=True, dispensable=2),
        TableColumn("held, write ms", right=True, dispensable=2),
    )
    rows = [
        [
            layer.layer,
            layer.name,
            f"{layer.calls:,}",
            "" if layer.bytes is None else f"{layer.bytes / (1 << 20):,.1f}",
            *(f"{layer.fops.get(fop, (0, 0.0))[1] / 1e6:,.3f}" for fop in DATA),
            *(f"{layer.held[fop] / 1e6:,.3f}" if fop in layer.held else "" for fop in DATA),
        ]
        for layer in volume.layers
    ]
    yield from text_table(columns, rows, width)
    yield from (f"note: {remark}" for remark in volume.remarks)
