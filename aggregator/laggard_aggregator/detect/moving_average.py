"""The trailing moving average that smooths a metric before its distribution is taken (Intrepid 4.2)."""

import numpy as np

from laggard_aggregator.detect.seam import BoolArray, FloatArray

LARGEST = 1e300
"""Values beyond this, which no storage metric reaches, count as missing: sums of them would overflow."""


def present(values: FloatArray) -> BoolArray:
    """Where `values` holds a sample, of the same shape: False for NaN, infinities and beyond LARGEST."""
    with np.errstate(invalid="ignore"):
        return np.abs(values) <= LARGEST


def moving_average(values: FloatArray, history: int, width: int) -> FloatArray:
    """The smoothed window, shape (W, C): samples first, so that what follows runs along components.

    `values` (C, history + W), NaN = missing. Each smoothed sample is the mean of those of the last `width`
    samples, itself included, that are present, added up from the oldest to the newest; where fewer than
    `width` lie before, of those there are. It is NaN where the sample itself is missing: a missing sample is
    absent from the distribution, never bridged by its neighbours.
    """
    window = values.shape[1] - history
    lead = max(0, width - 1 - history)  # samples that the history lacks, missing ones
    tail = np.ascontiguousarray(values[:, max(0, history - width + 1) :].T)
    here = present(tail)
    if lead == 0 and here.all():
        total = tail[:window].copy()
        for k in range(1, width):
            total += tail[k : k + window]
        total /= width
        return total
    samples = np.zeros((lead + tail.shape[0], tail.shape[1]))
    samples[lead:] = np.where(here, tail, 0.0)
    count = np.zeros(samples.shape, dtype=np.int64)
    count[lead:] = here
    total = samples[:window].copy()
    seen = count[:window].copy()
    for k in range(1, width):
        total += samples[k : k + window]
        seen += count[k : k + window]
    smoothed: FloatArray = np.where(here[-window:], total / np.maximum(seen, 1), np.nan)
    return smoothed
