"""Methods that find phases: the product's, and the ones it is compared with."""

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from bench.jobs_phases.score import Interval
from laggard_aggregator.jobs.verdict.analysis.phases import METHODS, find_phases
from laggard_aggregator.jobs.verdict.analysis.rate_series import rate_series

Method = Callable[[NDArray[np.float64], str], list[Interval]]
FIXED_RATE = 1e5
"""Threshold of Beacon's released code, bytes a second; of metadata it is 1 operation a second."""


def product(method: str) -> Method:
    """A method of `laggard jobs phases`."""

    def found(amounts: NDArray[np.float64], direction: str) -> list[Interval]:
        if np.isfinite(amounts).sum() < 2:
            return []
        series = rate_series(np.arange(amounts.size), amounts)
        return [(phase.start, phase.end) for phase in find_phases(series, direction, method)]

    return found


def fixed(amounts: NDArray[np.float64], direction: str) -> list[Interval]:
    """Rows above a fixed rate."""
    return _intervals(np.nan_to_num(amounts) > (1.0 if direction == "metadata" else FIXED_RATE))


def pelt(amounts: NDArray[np.float64], _: str) -> list[Interval]:
    """Segments of ruptures' PELT with an L2 cost on a log scale, above the midpoint of least and most."""
    import ruptures  # noqa: PLC0415 - of the bench alone, where it is installed

    values = np.nan_to_num(amounts)
    if not values.any() or values.size < 4:
        return []
    scale = np.log1p(values / max(float(values.mean()) / 20, 1e-9))
    ends = (
        ruptures.KernelCPD(kernel="linear", min_size=2)
        .fit(scale[:, None])
        .predict(pen=3 * np.log(scale.size))
    )
    means = np.zeros(values.size)
    for first, past in zip([0, *ends[:-1]], ends, strict=True):
        means[first:past] = scale[first:past].mean()
    return _intervals(means > (means.min() + means.max()) / 2)


def _intervals(active: NDArray[np.bool_]) -> list[Interval]:
    edges = np.flatnonzero(np.diff(active.astype(np.int8), prepend=0, append=0)) - 0.5
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def methods() -> dict[str, Method]:
    """All that can run here, by name."""
    found: dict[str, Method] = {name: product(name) for name in METHODS}
    found["fixed 0.1 MB/s"] = fixed
    if find_spec("ruptures"):
        found["PELT (ruptures)"] = pelt
    return found
