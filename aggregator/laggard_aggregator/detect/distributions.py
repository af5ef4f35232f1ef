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

from laggard_aggregator.detect.seam import FloatArray

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SampleClass:
    """Members with the same number of samples.

    `members` (k,): their positions in the population. `vectors` (k, L): cumulative counts or sorted bin
    indexes, integers held as float64.
    """

    samples: int
    members: IntArray
    vectors: FloatArray


@dataclass(frozen=True, slots=True)
class Population:
    """All live members of a group in one window, by their number of samples; the commonest number first."""

    size: int
    cumulative: bool
    classes: tuple[SampleClass, ...]


def population(indexes: NDArray[np.int16], samples: IntArray, bins: int) -> Population:
    """The population of n members.

    `indexes` (W, n): bin indexes in order of time, `bins` where a sample is missing. `samples` (n,): how many
    are not. Of two equally common sample counts the larger stands first.
    """
    window, n = indexes.shape
    cumulative = bins - 1 < window
    counts, sizes = np.unique(samples, return_counts=True)
    order = np.lexsort((-counts, -sizes))
    vectors = _cumulative(indexes, bins) if cumulative else np.sort(np.ascontiguousarray(indexes.T), axis=1)
    classes = []
    for m in counts[order].tolist():
        members = np.flatnonzero(samples == m) if len(counts) > 1 else np.arange(n)
        own = vectors[members] if len(counts) > 1 else vectors
        classes.append(SampleClass(m, members, (own if cumulative else own[:, :m]).astype(np.float64)))
    return Population(n, cumulative, tuple(classes))


def _cumulative(indexes: NDArray[np.int16], bins: int) -> NDArray[np.int16]:
    """Cumulative counts (n, bins - 1): samples of each member in bins 0 to i. Of one bin, a column of 0."""
    counts = np.zeros((max(bins - 1, 1), indexes.shape[1]), dtype=np.int16)
    for i in range(bins - 1):
        np.sum(indexes <= i, axis=0, dtype=np.int16, out=counts[i])
    return counts.T


def numerators(
    a: FloatArray, a_samples: int, b: FloatArray, b_samples: int, cumulative: bool
) -> tuple[FloatArray, int]:
    """All distances of the vectors `a` (p, L) to `b` (q, K): integers (p, q), and what to divide them by."""
    common = math.lcm(a_samples, b_samples)
    if a_samples != b_samples:
        if cumulative:
            a, b = a * (common // a_samples), b * (common // b_samples)
        else:
            a_steps = np.arange(1, a_samples + 1) * (common // a_samples)
            b_steps = np.arange(1, b_samples + 1) * (common // b_samples)
            ends = np.union1d(a_steps, b_steps)
            weights = np.diff(ends, prepend=0)
            a = a[:, np.searchsorted(a_steps, ends)] * weights
            b = b[:, np.searchsorted(b_steps, ends)] * weights
    return cdist(a, b, "cityblock"), common


def median_vector(vectors: FloatArray, cumulative: bool) -> FloatArray:
    """The componentwise median (L,) of `vectors` (k, L), itself a distribution.

    The lower median of sorted indexes and the upper one of cumulative counts are the same distribution.
    """
    k = len(vectors)
    rank = k // 2 if cumulative else (k - 1) // 2
    median: FloatArray = np.partition(np.ascontiguousarray(vectors.T), rank, axis=1)[:, rank]
    return median
