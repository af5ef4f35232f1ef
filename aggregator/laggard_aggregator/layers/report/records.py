"""The report as JSON records, one object a line."""

import json
import math
from collections.abc import Iterator
from typing import Any

from laggard_aggregator.layers.boundary import Boundary
from laggard_aggregator.layers.matching import MatchKind
from laggard_aggregator.layers.search import LayerFinding, held_times
from laggard_aggregator.layers.stack import Stack


def records(stack: Stack, findings: list[LayerFinding]) -> Iterator[dict[str, Any]]:
    """Records of the recording, each layer, each boundary, each finding, each remark."""
    yield {
        "record": "recording",
        "layers": [layer.label for layer in stack.layers],
        "span_seconds": stack.recording.span_ns / 1e9,
        "lost_events": stack.recording.lost_events,
    }
    for at in range(len(stack.layers)):
        yield _layer(stack, at)
    for boundary in stack.boundaries:
        yield _boundary(stack, boundary)
    for finding in findings:
        yield _finding(stack, finding)
    for remark in stack.remarks:
        yield {"record": "remark", "text": remark}


def line(record: dict[str, Any]) -> str:
    """A record as one line of JSON; numbers that are none are null."""
    return json.dumps({name: _finite(value) for name, value in record.items()})


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _layer(stack: Stack, at: int) -> dict[str, Any]:
    layer, measured, times = stack.layers[at], stack.characteristics[at], stack.breakdowns[at]
    concurrency, order = measured.concurrency, measured.sequentiality
    below, unexplained = stack.unmatched_ratio(at), stack.unexplained_ratio(at)
    unmatched = below if below is not None else unexplained or 0.0
    return {
        "record": "layer",
        "layer": layer.name,
        "device": layer.device or None,
        "requests": measured.requests,
        "bytes": measured.bytes,
        "completed_bytes": measured.completed_bytes,
        "streams": order.streams,
        "runs": len(order.run_bytes),
        "chains": order.chains,
        "mean_stream_bytes": order.mean_stream_bytes,
        "mean_run_bytes": order.mean_run_bytes,
        "run_bytes": [[length, share] for length, share in order.distribution()],
        "mean_request_bytes": measured.mean_request_bytes,
        "max_request_bytes": measured.max_request_bytes,
        "mean_concurrency": concurrency.mean,
        "mean_concurrency_busy": concurrency.mean_busy,
        "max_concurrency": concurrency.most,
        "busy_seconds": concurrency.busy_seconds,
        "idle_seconds": concurrency.span_seconds - concurrency.busy_seconds,
        "span_seconds": concurrency.span_seconds,
        "residence_seconds": concurrency.residence_seconds,
        "mean_residence_us": measured.mean_residence_us,
        "mib_per_second_busy": measured.mib_per_second_busy,
        "admit_issue_us": times.admit_issue,
        "issue_complt_us": times.issue_complt,
        "complt_callback_us": times.complt_callback,
        "unmatched_ratio": unmatched,
        "unmatched_below_ratio": below,
        "unexplained_ratio": unexplained,
        "unfinished": measured.unfinished,
        "short": measured.short,
        "issues": measured.issues,
        "left_out": layer.left_out,
    }


def _boundary(stack: Stack, boundary: Boundary) -> dict[str, Any]:
    matching = boundary.matching
    before, after, share = held_times(stack, boundary)
    lower = stack.layers[boundary.lower].requests
    explained = int(matching.explained().sum())
    return {
        "record": "boundary",
        "above": stack.layers[boundary.upper].label,
        "below": stack.layers[boundary.lower].label,
        "matched_by": matching.by,
        **{kind.name.lower(): boundary.share(kind) for kind in MatchKind},
        "explained": explained,
        "unexplained": len(lower) - explained,
        "several_extents": boundary.several,
        "held_before_us": before,
        "held_after_us": after,
        "held_share": share,
        "clock_offset_seconds": boundary.offset_ns / 1e9,
        "clock_uncertainty_seconds": boundary.uncertainty_ns / 1e9,
        "refused": boundary.refused or None,
    }


def _finding(stack: Stack, finding: LayerFinding) -> dict[str, Any]:
    above, below = stack.layers[finding.above], stack.layers[finding.below]
    return {
        "record": "finding",
        "candidate": finding.candidate,
        "kind": finding.kind,
        "above": above.label,
        "below": below.label,
        "share": finding.share,
        "text": finding.text,
        "advice": finding.advice,
    }
