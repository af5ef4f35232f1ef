"""Generic I/O characteristics of one layer (Lu & Shen, section 3)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.layers.columns import ABSENT, Ints, RequestColumns, TracedLayer

_MIB = float(1 << 20)
_CHAIN_REQUESTS = 64
"""A request continues a chain if one of the latest requests of its space ended where it starts."""


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Outstanding requests: average over the layer's span and while busy, maximum; times in seconds."""

    mean: float
    mean_busy: float
    most: int
    busy_seconds: float
    span_seconds: float
    residence_seconds: float


@dataclass(frozen=True, slots=True)
class Sequentiality:
    """Streams, runs and chains. `run_bytes`: length of each run, in order of access.

    A chain is a sequential access that others may interleave: the run that it would be if it had been alone.
    """

    streams: int
    stream_bytes: Ints
    run_bytes: Ints
    chains: int

    @property
    def mean_run_bytes(self) -> float:
        """Bytes of a run, on average."""
        return float(self.run_bytes.mean()) if len(self.run_bytes) else 0.0

    @property
    def mean_stream_bytes(self) -> float:
        """Bytes of a stream, on average."""
        return float(self.stream_bytes.mean()) if len(self.stream_bytes) else 0.0

    def mean_chain_bytes(self) -> float:
        """Bytes of a chain, on average."""
        return float(self.run_bytes.sum()) / self.chains if self.chains else 0.0

    def distribution(self) -> list[tuple[int, float]]:
        """Run lengths and their shares of all runs, the most frequent first (Table 1); at most 16."""
        lengths, counts = np.unique(self.run_bytes, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:16]
        return [(int(lengths[i]), float(counts[i] / counts.sum())) for i in order]


@dataclass(frozen=True, slots=True)
class Characteristics:
    """All characteristics of a layer."""

    requests: int
    bytes: int
    completed_bytes: int
    mean_request_bytes: float
    max_request_bytes: int
    concurrency: Concurrency
    sequentiality: Sequentiality
    mib_per_second_busy: float
    mean_residence_us: float
    unfinished: int
    short: int
    issues: int


def of_layer(layer: TracedLayer, recording_end: int) -> Characteristics:
    """Characteristics of a layer; an unfinished request is outstanding until `recording_end`.

    Those whose end was lost count, but not among the outstanding.
    """
    columns = layer.requests
    begin, end = columns.begin_ns, columns.end
    unfinished = (end == ABSENT) & (columns.callback == ABSENT)
    known = np.where(unfinished, np.maximum(begin, recording_end), end)
    concurrency = outstanding(begin[~columns.is_lost], known[~columns.is_lost])
    completed = _completed(columns, unfinished)
    short = (columns.done >= 0) & (columns.done < columns.size) & ~unfinished
    sizes = columns.size
    busy = concurrency.busy_seconds
    finished = int((~unfinished).sum())
    residence = float((known - begin)[~unfinished].sum()) / 1e9
    return Characteristics(
        requests=len(columns),
        bytes=int(sizes.sum()),
        completed_bytes=completed,
        mean_request_bytes=float(sizes.mean()) if len(sizes) else 0.0,
        max_request_bytes=int(sizes.max()) if len(sizes) else 0,
        concurrency=concurrency,
        sequentiality=sequentiality(columns),
        mib_per_second_busy=completed / _MIB / busy if busy else 0.0,
        mean_residence_us=residence * 1e6 / finished if finished else 0.0,
        unfinished=int(unfinished.sum()),
        short=int(short.sum()),
        issues=int(columns.issues.sum()),
    )


def _completed(columns: RequestColumns, unfinished: NDArray[np.bool_]) -> int:
    moved = np.where(columns.done >= 0, columns.done, columns.size)
    return int(moved[~unfinished].sum())


def outstanding(begin: Ints, end: Ints) -> Concurrency:
    """Concurrency of requests from `begin` to `end`, ns."""
    if not len(begin):
        return Concurrency(0.0, 0.0, 0, 0.0, 0.0, 0.0)
    starts, ends = np.sort(begin), np.sort(end)
    span = int(ends[-1] - starts[0])
    residence = float((end - begin).astype(np.float64).sum())
    busy = busy_ns(begin, end)
    ended = np.searchsorted(ends, starts, side="right")
    most = int((np.arange(1, len(starts) + 1) - ended).max())
    most = max(most, 1)  # also of requests without duration
    return Concurrency(
        mean=residence / span if span else 0.0,
        mean_busy=residence / busy if busy else 0.0,
        most=most,
        busy_seconds=busy / 1e9,
        span_seconds=span / 1e9,
        residence_seconds=residence / 1e9,
    )


def busy_ns(begin: Ints, end: Ints) -> int:
    """Length of the union of intervals."""
    order = np.argsort(begin, kind="stable")
    start = begin[order]
    reached = np.maximum.accumulate(end[order])
    gaps = start[1:] - reached[:-1]
    return int(reached[-1] - start[0] - gaps[gaps > 0].sum())


def sequentiality(columns: RequestColumns) -> Sequentiality:
    """Streams, runs and chains of the layer's requests in the order in which it accessed them.

    Order: of ISSUE where the layer has its own, else of admission. A short request is as long as what it
    moved; the next one continues it there, or where it was meant to end. What moved nothing is left out.
    """
    moved = np.where(columns.done >= 0, np.minimum(columns.done, columns.size), columns.size)
    at = np.flatnonzero((columns.start >= 0) & (moved > 0))
    empty = np.zeros(0, np.int64)
    if not len(at):
        return Sequentiality(0, empty, empty, 0)
    time = np.where(columns.issue[at] == ABSENT, columns.begin_ns[at], columns.issue[at])
    if (time[1:] < time[:-1]).any():
        at = at[np.argsort(time, kind="stable")]
    space, start, moved = columns.space[at], columns.start[at], moved[at]
    end, meant = start + moved, start + columns.size[at]
    continues = np.zeros(len(at), np.bool_)
    continues[1:] = ((start[1:] == end[:-1]) | (start[1:] == meant[:-1])) & (space[1:] == space[:-1])
    first = np.flatnonzero(~continues)
    runs = np.add.reduceat(moved, first)
    return Sequentiality(*_streams(space, start, end), runs, _chains(space, start, end, meant))


def _streams(space: NDArray[np.int32], start: Ints, end: Ints) -> tuple[int, Ints]:
    """Number and bytes of the contiguous areas that were accessed, whatever the order."""
    order = np.lexsort((start, space))
    s, low, high = space[order], start[order], end[order]
    fresh_space = np.append(True, s[1:] != s[:-1])
    reached = _reached(fresh_space, high)
    fresh = fresh_space.copy()
    fresh[1:] |= low[1:] > reached[:-1]
    first = np.flatnonzero(fresh)
    last = np.append(first[1:], len(s)) - 1
    return len(first), reached[last] - low[first]


def _reached(fresh: NDArray[np.bool_], high: Ints) -> Ints:
    """Running maximum of `high` that starts over at each True of `fresh`."""
    if int(fresh.sum()) == 1:
        return np.maximum.accumulate(high)
    group = np.cumsum(fresh) - 1
    ranks = np.argsort(np.argsort(high, kind="stable"), kind="stable")
    ordered = np.maximum.accumulate(group * len(high) + ranks) % len(high)
    by_rank = np.empty_like(high)
    by_rank[ranks] = high
    reached: Ints = by_rank[ordered]
    return reached


def _chains(space: NDArray[np.int32], start: Ints, end: Ints, meant: Ints) -> int:
    """Number of chains: requests that continue none of the `_CHAIN_REQUESTS` requests before them."""
    count, short = len(start), np.flatnonzero(meant > end)
    spaces = np.concatenate([space, space[short], space]).astype(np.int64)
    address = np.concatenate([end, meant[short], start])
    place = np.concatenate([np.arange(count), short, np.arange(count)])
    is_start = np.repeat(np.array([0, 1], np.int8), (count + len(short), count))
    order = np.lexsort((-is_start, place, address, spaces))  # a request never continues itself
    ends_at = np.where(is_start[order] == 0, order, -1)
    last = np.maximum.accumulate(np.where(ends_at >= 0, np.arange(len(order)), -1))
    starts = np.flatnonzero(is_start[order] == 1)
    candidate = last[starts]
    good = candidate >= 0
    here, there = order[starts[good]], order[candidate[good]]
    same = (spaces[here] == spaces[there]) & (address[here] == address[there])
    near = place[here] - place[there] <= _CHAIN_REQUESTS
    return count - int((same & near).sum())
