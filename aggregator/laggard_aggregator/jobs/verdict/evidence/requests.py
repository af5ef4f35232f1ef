"""Numbers of a job's own that make it slow when they change: metadata, amplification, requests, I/O modes.

Requests are those that clients count, or servers where no client does.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from laggard_aggregator.jobs.access.queries import MANY_OPERATIONS
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.index.reader import Row
from laggard_aggregator.jobs.join.volumes import CLIENT
from laggard_aggregator.jobs.traces.io_modes import ModeShares
from laggard_aggregator.jobs.traces.job_traces import shares
from laggard_aggregator.jobs.verdict.analysis.advised_gain import UNKNOWN_WAITS, RequestWaits
from laggard_aggregator.jobs.verdict.analysis.cause_ranking import OwnNumber

_OF_SUMMARY: Final = {
    "s_mdops": "metadata operations a second",
    "s_amplification": "bytes moved for each that was asked for",
}
_LEAST: Final = {"s_mdops": MANY_OPERATIONS, "s_amplification": 1.0}
"""A smaller number slows nothing."""
_LEAST_USUAL: Final = 1.0
"""The usual number counts as this at least: a rise above none has no ratio."""
_LAYERS: Final = ("client", "server")
_MEAN: Final = {"read": "mean read", "write": "mean write"}
MEANS: Final = frozenset(_MEAN.values())
"""Numbers in bytes, worse when lower."""
_MODES: Final = {"N-1": "N-1 (one file of all processes)", "1-1": "1-1 (one process alone)"}
MODES: Final = frozenset(_MODES.values())
"""Shares of the volume, worse when higher."""
_LEAST_SHARE: Final = 0.05
"""The usual share of a mode counts as this at least."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Bytes and their requests, of one direction."""

    amount: float
    count: float

    @property
    def mean(self) -> float:
        """Bytes of a request; `count` is above zero."""
        return self.amount / self.count


def requests(components: Iterable[Row]) -> Mapping[str, Requests]:
    """Requests by direction from a job's `job_components`, none for a direction without."""
    sums: dict[tuple[str, str], list[float]] = {}
    for row in components:
        if row["direction"] in _MEAN and row["bytes"] and row["operations"]:
            both = sums.setdefault((row["layer"], row["direction"]), [0.0, 0.0])
            both[0] += row["bytes"]
            both[1] += row["operations"]
    by_direction = {}
    for direction in _MEAN:
        both = next((sums[layer, direction] for layer in _LAYERS if (layer, direction) in sums), [])
        if both:
            by_direction[direction] = Requests(*both)
    return by_direction


def own_numbers(
    runs: Sequence[VisibleJob],
    requests_of: Sequence[Mapping[str, Requests]],
    modes_of: Callable[[VisibleJob], Mapping[str, ModeShares]],
) -> Iterator[OwnNumber]:
    """Yields the numbers of the first of `runs` beside those of the others, its earlier runs.

    `requests_of`: requests of each by direction. Modes are those of runs with traces alone.
    """
    job, *earlier = runs
    for name, text in _OF_SUMMARY.items():
        least = _LEAST[name]
        if job[name] is not None and job[name] >= least:
            then = [max(run[name], _LEAST_USUAL) for run in earlier if run[name] is not None]
            yield OwnNumber(text, job[name], np.array(then))
    mine, *theirs = requests_of
    for direction, now in mine.items():
        then = [run[direction].mean for run in theirs if direction in run]
        yield OwnNumber(_MEAN[direction], now.mean, np.array(then), "lower")
    modes = modes_of(job)
    traced = [shares(modes_then) for run in earlier if (modes_then := modes_of(run))] if modes else []
    for mode, text in _MODES.items() if modes else ():
        usual = np.array([max(modes_then[mode], _LEAST_SHARE) for modes_then in traced])
        yield OwnNumber(text, shares(modes)[mode], usual)


def shared_writes(modes: Mapping[str, ModeShares]) -> float:
    """Share of the written bytes that went N-1; 0 without a trace."""
    return modes["write"].shares["N-1"] if "write" in modes else 0.0


LEAST_COVERAGE: Final = 0.9
_EXPORT: Final = ":"
"""In the names of NFS exports alone, whose RPCs the kernel sends in its own time while applications go on."""


def waiting(job: Mapping[str, Any], components: Iterable[Row]) -> RequestWaits:
    """Waits of a finished job by its `job_components`, in the mean of the nodes that had requests.

    A direction is unknown when some of its requests have no latency, were shared, or ran in gaps, and when
    an application does not wait for them (NFS).
    """
    nodes: dict[str, set[str]] = {}
    sums = {"read": 0.0, "write": 0.0, "metadata": 0.0}
    for row in components:
        if row["layer"] != CLIENT or not row["operations"]:
            continue
        direction, known = row["direction"], row["coverage"]
        nodes.setdefault(direction, set()).add(row["node"])
        gaps = known is not None and known < LEAST_COVERAGE
        if row["shared"] or gaps or row["latency_seconds"] is None or _EXPORT in row["component"]:
            sums[direction] = float("nan")
        else:
            sums[direction] += row["latency_seconds"]
    if job["start"] is None or job["end"] <= job["start"]:
        return UNKNOWN_WAITS
    means = {component: total / len(nodes.get(component, " ")) for component, total in sums.items()}
    reads, writes, metadata = (mean if mean >= 0 else None for mean in means.values())
    return RequestWaits(job["end"] - job["start"], job["s_active_seconds"], reads, writes, metadata)
