"""What a component's peers do: the median of the others, without the component itself."""

import numpy as np

from laggard_aggregator.detect.seam import FloatArray


def leave_one_out_median(values: FloatArray) -> FloatArray:
    """For each of `values` (n,), none NaN, the median of the n - 1 others. NaN where there is no other."""
    n = len(values)
    if n < 2:
        return np.full(n, np.nan)
    order = np.argsort(values)
    ordered = values[order]
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    low, high = (n - 2) // 2, (n - 1) // 2  # the middle ranks among the others
    median: FloatArray = (ordered[low + (rank <= low)] + ordered[high + (rank <= high)]) / 2
    return median
