"""Impossible requests of damaged or hostile traces: left out and counted, before anything is computed."""

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.layers.columns import ABSENT, Ints, LayerRecording, TracedLayer

LIMIT = 1 << 61
"""Largest time in ns and largest address: sums and differences of two still fit 64 bits."""


def keep_plausible(recording: LayerRecording) -> None:
    """Leaves out requests without times, with impossible times or ranges, or with events out of order.

    An ISSUE may follow the CALLBACK: a layer that buffers answers first.
    """
    for layer in recording.layers:
        columns = layer.requests
        times = [columns.admit, columns.issue, columns.complt, columns.callback]
        bad = np.zeros(len(columns), np.bool_)
        for time in times:
            bad |= (time != ABSENT) & ((time < -LIMIT) | (time > LIMIT))
        bad |= columns.begin_ns == ABSENT
        bad |= (columns.size < 0) | (columns.size > LIMIT) | (columns.start < -1)
        bad |= (columns.start >= 0) & (columns.start > LIMIT - columns.size.clip(0, LIMIT))
        bad |= columns.done > LIMIT
        _leave_out(recording, layer, bad, "impossible times or ranges")
        _leave_out(recording, layer, _out_of_order(layer), "events out of order")


def _out_of_order(layer: TracedLayer) -> NDArray[np.bool_]:
    columns = layer.requests
    pairs = (
        (columns.admit, columns.callback),
        (columns.admit, columns.issue),
        (columns.admit, columns.complt),
        (columns.issue, columns.complt),
    )
    wrong = np.zeros(len(columns), np.bool_)
    for earlier, later in pairs:
        wrong |= _after(earlier, later)
    return wrong


def _after(earlier: Ints, later: Ints) -> NDArray[np.bool_]:
    is_after: NDArray[np.bool_] = (earlier != ABSENT) & (later != ABSENT) & (earlier > later)
    return is_after


def _leave_out(recording: LayerRecording, layer: TracedLayer, bad: NDArray[np.bool_], reason: str) -> None:
    count = int(bad.sum())
    if count:
        layer.left_out[reason] = layer.left_out.get(reason, 0) + count
        layer.requests = layer.requests.where(~bad)
        recording.remarks.append(f"{layer.label}: {count} requests with {reason} were left out")
