"""Slow components within a job: the daemon's detector over forwarders or OSTs, and the paper's two rules."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import MIN_PEERS, GroupWindow
from laggard_aggregator.detect.registry import make_detector
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.jobs.verdict.analysis.rate_series import FloatArray

LEAST_PEERS = MIN_PEERS
PEAK_SHARE = 0.3
PEAK_MINUTES = 60.0
PEERS_SHARE = 0.5
PEERS_HOURS = (1.0, 4.0, 12.0, 96.0)
_LONGEST_WINDOW = 60
_SHORTEST_WINDOW = 12
_JOBS_A_WEEK = 1000.0
_CONFIRM = 2
"""Windows, of the last three, in which a component must be anomalous: a job is short."""


def slow_in_job(
    components: Sequence[str],
    latencies: FloatArray,
    load: Mapping[str, FloatArray],
    interval_seconds: float,
) -> dict[str, float]:
    """Components slower than their peers in this job, with the factor: severity of the last anomalous window.

    `latencies`, each of `load`: shape (C, T), by component and interval, as in `GroupWindow`. Empty below
    LEAST_PEERS components. _JOBS_A_WEEK share the budget of one false alarm a week.
    """
    count = latencies.shape[1]
    window = min(_LONGEST_WINDOW, max(_SHORTEST_WINDOW, count // 3))
    if len(components) < LEAST_PEERS or count < window:
        return {}
    shift = max(window // 2, 1)
    settings = DetectSettings(
        interval_seconds=interval_seconds,
        window_samples=window,
        shift_samples=shift,
        confirm=_CONFIRM,
        tests_at_once=max(round(_JOBS_A_WEEK * len(components) * count * interval_seconds / 604_800), 1),
    )
    detector = make_detector(settings, "latency")
    flags = np.zeros((len(components), 0), np.bool_)
    severity = np.ones(len(components))
    slow: dict[str, float] = {}
    for end in range(window, count + 1, shift):
        part = slice(end - window, end)
        verdicts = detector.observe(
            GroupWindow(
                group="job",
                components=tuple(components),
                start=(end - window) * interval_seconds,
                end=end * interval_seconds,
                history=0,
                metrics={"latency": latencies[:, part]},
                load={name: values[:, part] for name, values in load.items()},
            )
        )
        anomalous = verdicts.anomalous & verdicts.judged
        severity = np.where(anomalous, verdicts.severity, severity)
        flags = np.column_stack([flags, anomalous])[:, -(2 * _CONFIRM - 1) :]
        for row in np.flatnonzero(flags.sum(1) >= _CONFIRM).tolist():
            slow[components[row]] = float(severity[row])
    return slow


def below_peak(rates: FloatArray, peaks: FloatArray, interval_seconds: float) -> list[int]:
    """Rows of `rates`, shape (C, T), below 30 % of `peaks`, shape (C,), for an hour on end under load.

    Beacon's rule (NSDI '19, section 4.2); intervals without any work or data end a stretch.
    """
    low = (rates > 0) & (rates < PEAK_SHARE * peaks[:, None])
    least = int(np.ceil(PEAK_MINUTES * 60 / interval_seconds))
    return [row for row in range(len(rates)) if _longest(low[row]) >= least]


def below_peers(rates: FloatArray, interval_seconds: float, hours: float) -> list[int]:
    """Rows of `rates`, shape (C, T), whose peak in the last `hours` is below half the mean of their peers'.

    Each is held against all others, not against suspects, so a single straggler stays one. NaN: no work.
    Empty with fewer than two components with work.
    """
    recent = rates[:, -max(int(hours * 3600 / interval_seconds), 1) :]
    known = np.isfinite(recent).any(1)
    peaks = np.where(known, np.where(np.isfinite(recent), recent, -np.inf).max(1, initial=-np.inf), np.nan)
    rows = np.flatnonzero(known)
    total = float(peaks[rows].sum())
    if rows.size < 2:
        return []
    return [int(row) for row in rows if peaks[row] < PEERS_SHARE * (total - peaks[row]) / (rows.size - 1)]


def _longest(mask: NDArray[np.bool_]) -> int:
    edges = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0))
    return int((edges[1::2] - edges[::2]).max(initial=0))
