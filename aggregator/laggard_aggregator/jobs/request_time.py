"""Time that the nodes of a job wait for requests, as its clients measured it."""

from collections.abc import Iterable
from typing import Final

from laggard_aggregator.jobs.analysis.advised_gain import UNKNOWN_WAITS, RequestWaits
from laggard_aggregator.jobs.index_reader import Row
from laggard_aggregator.jobs.volumes import CLIENT

LEAST_COVERAGE: Final = 0.9
_EXPORT: Final = ":"
"""In the names of NFS exports alone, whose RPCs the kernel sends in its own time while applications go on."""


def waiting(job: Row, components: Iterable[Row]) -> RequestWaits:
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
    means = {each: total / len(nodes.get(each, " ")) for each, total in sums.items()}
    reads, writes, metadata = (mean if mean >= 0 else None for mean in means.values())
    return RequestWaits(job["end"] - job["start"], job["s_active_seconds"], reads, writes, metadata)
