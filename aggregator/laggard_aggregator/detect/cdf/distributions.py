"""The binned distributions of a group's members and their exact CDF distances.

The distance of two CDFs over common bins is the sum over bins of |P(i) - Q(i)|, each P(i) a count over the
number of samples. With equal counts m it is also the mean absolute difference of the two sorted vectors of
bin indexes (the Wasserstein-1 distance, in bins), so a member is kept in whichever form is shorter:
`bins - 1` cumulative counts (the last is always m) or m sorted indexes. Both are integers, so that their
differences add up exactly: a distance is one integer over one denominator, rounded once. With m and k samples
the denominator is lcm(m, k) and the vectors are first brought to common steps (merged quantiles).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from laggard_aggregator.detect.interface import FloatArray, IntArray

BinArray = NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class SampleClass:
    """Members with the same number of samples.

    `members` (k,): their positions in the population. `vectors` (k, L): cumulative counts or sorted bin
    indexes.
    """

    samples: int
    members: IntArray
    vectors: BinArray


@dataclass(frozen=True, slots=True)
class Population:
    """All live members of a group in one window, by their number of samples; the commonest number first."""

    size: int
    cumulative: bool
    classes: tuple[SampleClass, ...]


def population(indexes: BinArray, samples: IntArray, bins: int) -> Population:
    """The population of n members.

    `indexes` (W, n): bin indexes in order of time, `bins` where a sample is missing. `samples` (n,): how many
    are not. Of two equally common sample counts the larger stands first.
    """
    window, n = indexes.shape
    cumulative = bins - 1 < window
    vectors = _cumulative(indexes, bins) if cumulative else np.sort(np.ascontiguousarray(indexes.T), axis=1)
    counts, sizes = np.unique(samples, return_counts=True)
    if len(counts) == 1:
        return Population(n, cumulative, (SampleClass(int(counts[0]), np.arange(n), vectors),))
    classes = []
    for m in counts[np.lexsort((-counts, -sizes))].tolist():
        members = np.flatnonzero(samples == m)
        classes.append(SampleClass(m, members, vectors[members, : vectors.shape[1] if cumulative else m]))
    return Population(n, cumulative, tuple(classes))


def _cumulative(indexes: BinArray, bins: int) -> BinArray:
    """Cumulative counts (n, bins - 1): samples of each member in bins 0 to i. Of one bin, a column of 0."""
    window, n = indexes.shape
    counts = np.zeros((max(bins - 1, 1), n), dtype=np.int16)
    narrow = np.uint8 if window < 256 else np.int16
    for i in range(bins - 1):
        counts[i] = np.add.reduce((indexes <= i).view(np.uint8), axis=0, dtype=narrow)
    return np.ascontiguousarray(counts.T)


def numerators(
    a: BinArray, a_samples: int, b: BinArray, b_samples: int, cumulative: bool
) -> tuple[FloatArray, int]:
    """All distances of the vectors `a` (p, L) to `b` (q, K): integers (p, q), and their divisor."""
    common = math.lcm(a_samples, b_samples)
    if a_samples == b_samples:
        return cdist(a, b, "cityblock"), common
    if cumulative:
        a_scale, b_scale = float(common // a_samples), float(common // b_samples)
        return cdist(a * a_scale, b * b_scale, "cityblock"), common
    a_steps = np.arange(1, a_samples + 1) * (common // a_samples)
    b_steps = np.arange(1, b_samples + 1) * (common // b_samples)
    ends = np.union1d(a_steps, b_steps)
    weights = np.diff(ends, prepend=0).astype(np.float64)
    a_merged = a[:, np.searchsorted(a_steps, ends)] * weights
    b_merged = b[:, np.searchsorted(b_steps, ends)] * weights
    return cdist(a_merged, b_merged, "cityblock"), common


def median_vectors(vectors: BinArray, cumulative: bool) -> BinArray:
    """The componentwise medians (..., L) of sets of k vectors (..., k, L), themselves distributions.

    The lower median of sorted indexes and the upper one of cumulative counts are the same distribution.
    """
    k = vectors.shape[-2]
    rank = k // 2 if cumulative else (k - 1) // 2
    along = np.ascontiguousarray(np.swapaxes(vectors, -1, -2))
    # Bisection on the value: ordering these many ties costs several times more.
    low = np.zeros(along.shape[:-1], dtype=np.int32)
    high = along.max(axis=-1).astype(np.int32)
    while (low < high).any():
        middle = (low + high) // 2
        reached = np.count_nonzero(along <= middle.astype(np.int16)[..., np.newaxis], axis=-1) > rank
        low, high = np.where(reached, low, middle + 1), np.where(reached, middle, high)
    return low.astype(np.int16)
