"""Rows of `job_series`, `job_components` and `job_summaries` from a job's account.

Definitions are those of docs/jobs.md, "Counters of a job". A null is unknown, never zero.
"""

from collections import Counter
from typing import Any

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, FloatArray
from laggard_aggregator.jobs.join.accounts import SECOND_NS, JobAccount
from laggard_aggregator.jobs.join.busy_time import BusyTime
from laggard_aggregator.jobs.join.volumes import (
    CLIENT,
    FORWARDER,
    LAYERS,
    METADATA,
    OPERATIONS,
    READ,
    SERVER,
    WRITTEN,
)
from laggard_aggregator.jobs.tables import BUSY_SECONDS

MIB = 1024.0 * 1024.0
LEAST_KNOWN = 0.5
"""Share of the job's node-time that must be known for a value of its series; below it the value is a gap."""
_KEPT_BITS = 12
_LEAST_COMPARED = 16 * MIB
"""Least bytes of traces that are compared with counters."""

ResultRow = dict[str, Any]


def series_rows(account: JobAccount, revision_at: int) -> list[ResultRow]:
    """A row for each layer with data."""
    known = _known_bins(account)
    series = {layer: account.series(layer) for layer in LAYERS if layer in account.fine}
    return [
        {
            "job_key": account.job.key,
            "revision_at": revision_at,
            "layer": layer,
            "node": None,
            "resolution_seconds": account.job.step_ns / SECOND_NS,
            "reading_seconds": account.interval_ns(layer) / SECOND_NS,
            "start": account.job.start_ns / SECOND_NS,
            "read_bytes": _list(moved[READ], known[layer]),
            "written_bytes": _list(moved[WRITTEN], known[layer]),
            "metadata_operations": _list(moved[OPERATIONS], known[layer]),
            **{
                name: _list(seconds, known[layer])
                for name, seconds in zip(BUSY_SECONDS.values(), account.busy_seconds(layer), strict=True)
            },
        }
        for layer, moved in series.items()
    ]


def component_rows(account: JobAccount, revision_at: int) -> list[ResultRow]:
    """A row for each component and direction with something in it."""
    held: Counter[str] = Counter()
    for node, start, end in account.job.held:
        held[node] += end - start
    rows = []
    for (layer, node, component, shared), mine in sorted(account.components.items()):
        read, written, metadata, reads, writes, *times, observed = mine.sums.tolist()
        coverage = min(observed / held[node], 1.0) if layer == CLIENT and held[node] else None
        busy_ns = mine.busy_ns or (None, None, None)
        for direction, volume, operations, latency, busy in (
            ("read", read, reads, times[0], busy_ns[READ]),
            ("write", written, writes, times[1], busy_ns[WRITTEN]),
            ("metadata", None, metadata, times[2], busy_ns[OPERATIONS]),
        ):
            if volume or operations:
                rows.append(
                    {
                        "job_key": account.job.key,
                        "revision_at": revision_at,
                        "layer": layer,
                        "node": node,
                        "component": component,
                        "direction": direction,
                        "bytes": volume,
                        "operations": operations,
                        "latency_seconds": latency * mine.time_scale if latency else None,
                        "coverage": coverage,
                        "shared": shared,
                        "busy_seconds": busy / SECOND_NS if busy is not None else None,
                    }
                )
    return rows


def summary_row(account: JobAccount, revision_at: int) -> ResultRow:
    """The summary of a job."""
    job = account.job
    volumes = {layer: _volumes(account, layer) for layer in LAYERS}
    first = CLIENT if CLIENT in account.fine else SERVER
    of_metadata = CLIENT if CLIENT in account.fine else METADATA
    moved, metadata = account.fine.get(first), account.fine.get(of_metadata)
    step = job.fine_ns / SECOND_NS
    row: ResultRow = {"job_key": job.key, "revision_at": revision_at}
    busy = {
        name: BusyTime.of(
            account.fine[layer][place],
            account.busy[layer][place],
            account.interval_ns(layer) / SECOND_NS,
            step,
            float(account.change_of(layer)[place]),
        )
        for name, layer, place in (
            ("read", first, READ),
            ("written", first, WRITTEN),
            ("metadata", of_metadata, OPERATIONS),
        )
        if layer in account.fine
    }
    for name in ("read", "written"):
        direction = busy.get(name)
        row[f"{name}_bytes"] = None if direction is None else float(direction.amounts.sum())
        rate, error = f"mean_{name}_mib_per_second", f"mean_{name}_mib_per_second_error"
        row[rate], row[error] = _rate(direction, MIB)
        row[f"peak_{name}_mib_per_second"] = None if direction is None else direction.largest / MIB
    moving = None if moved is None else BusyTime.together([busy["read"], busy["written"]])
    row["mib_per_second"], row["mib_per_second_error"] = _rate(moving, MIB)
    row["metadata_operations"] = None if metadata is None else float(metadata[OPERATIONS].sum())
    row["mdops"], row["mdops_error"] = _rate(busy.get("metadata"), 1.0)
    active = BusyTime.together(list(busy.values())).seconds if busy else None
    row["active_seconds"] = None if active is None else min(active, job.seconds)
    own = [mine for key, mine in account.components.items() if key[0] == first and not key[3]]
    count = sum(float(mine.sums[3:5].sum()) for mine in own)
    row["iops"] = None if moving is None else count / moving.seconds if moving.seconds else 0.0
    row["core_hours"] = None if job.cpus is None else job.cpus * job.seconds / 3600
    for layer in (CLIENT, FORWARDER, SERVER):
        row[f"{layer}_read_bytes"], row[f"{layer}_written_bytes"] = volumes[layer]
    shared = {key[0] for key in account.components if key[3]} - {CLIENT}
    above, middle, below = (
        None if layer in shared else _total(volumes[layer]) for layer in (CLIENT, FORWARDER, SERVER)
    )
    row["amplification"] = _amplification(above, middle, below)
    row["unaccounted_ratio"] = max(1.0 - below / above, 0.0) if above and below is not None else None
    row["trace_difference"] = _difference(account.by_traces_and_counters)
    row["coverage"] = coverage_of(account)
    row["nodes_with_io"] = None if moved is None else _busy_nodes(account, first)
    row["shared"] = any(key[3] for key in account.components)
    row |= {"mode_n_n": None, "mode_n_m": None, "mode_n_1": None, "mode_1_1": None, "mode_unknown": 1.0}
    return row


def _amplification(client: float | None, forwarder: float | None, server: float | None) -> float | None:
    """Bytes of the lowest layer with counters for each of the highest; None with one layer alone."""
    known = [moved for moved in (client, forwarder, server) if moved is not None]
    return known[-1] / known[0] if len(known) > 1 and known[0] else None


def _difference(both: tuple[float, float] | None) -> float | None:
    """By how much bytes by traces exceed those by counters, as a share of the larger; None of few bytes."""
    if both is None or max(both) < _LEAST_COMPARED:
        return None
    traced, counted = both
    return (traced - counted) / max(both)


def coverage_of(account: JobAccount) -> float:
    """Share of the job's node-time with known counters of clients, shared ones included."""
    expected = account.expected_ns(_components_of_nodes(account)).sum()
    observed = sum(float(mine.sums[-1]) for key, mine in account.components.items() if key[0] == CLIENT)
    return min(observed / expected, 1.0) if expected else 0.0


def _busy_nodes(account: JobAccount, layer: str) -> int:
    busy = [key for key, mine in account.components.items() if mine.sums[:2].any()]
    return len({node for of_layer, node, _, _ in busy if of_layer == layer})


def _components_of_nodes(account: JobAccount) -> dict[str, int]:
    names = {(node, component) for layer, node, component, _ in account.components if layer == CLIENT}
    return Counter(node for node, _ in names)


def _known_bins(account: JobAccount) -> dict[str, BoolArray]:
    """Of each layer, the values that are known."""
    every = np.arange(account.job.bins)
    known = {
        layer: (every <= account.last_bin.get(layer, account.job.bins))
        & (account.unshared_ns.get(layer, np.zeros(account.job.bins)) >= 0)
        for layer in LAYERS
    }
    expected = account.expected_ns(_components_of_nodes(account))
    known[CLIENT] = account.observed_ns >= LEAST_KNOWN * expected
    return known


def _list(values: FloatArray, known: BoolArray) -> list[float | None]:
    """Values to 12 bits, 1 in 4,000: more of them would be most of the file."""
    mantissa, exponent = np.frexp(values)
    kept = np.ldexp(np.rint(np.ldexp(mantissa, _KEPT_BITS)), exponent - _KEPT_BITS)
    return [value if there else None for value, there in zip(kept.tolist(), known.tolist(), strict=True)]


def _rate(busy: BusyTime | None, unit: float) -> tuple[float | None, float | None]:
    """A rate and by how much it may differ, in `unit`; None where unknown."""
    if busy is None:
        return None, None
    error = busy.mean_error
    return busy.mean / unit, None if error is None else error / unit


def _volumes(account: JobAccount, layer: str) -> tuple[float | None, float | None]:
    volumes = account.fine.get(layer)
    return (None, None) if volumes is None else (float(volumes[READ].sum()), float(volumes[WRITTEN].sum()))


def _total(volumes: tuple[float | None, float | None]) -> float | None:
    read, written = volumes
    return None if read is None or written is None else read + written
