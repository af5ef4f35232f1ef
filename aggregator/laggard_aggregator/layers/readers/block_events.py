"""Block events: bios queued, requests issued to the device and completed.

An issue and a completion are of one request when device, operation, sector and length agree. A request may
complete in parts, each where the one before ended. A completion with an error has moved nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.layers.columns import (
    ABSENT,
    Ints,
    LayerRecording,
    RequestColumns,
    ToldLayers,
    TracedLayer,
    rank_of,
)
from laggard_aggregator.layers.readers.text_lines import joined

SECTOR_BYTES = 512
QUEUED, ISSUED, COMPLETED, REQUEUED, ENDED = 1, 2, 3, 4, 5
_MARGIN_NS = 1_000_000_000
_MARGIN_SHARE = 0.05
"""Margin at a recording's end, as a share of it; requests that begin there may still complete."""
MAX_DEVICES = 64
_Keys = list[tuple[NDArray[Any], NDArray[Any]]]
EVENTS = {
    "bio_queue": QUEUED,
    "bio_complete": ENDED,
    "rq_issue": ISSUED,
    "rq_complete": COMPLETED,
    "rq_requeue": REQUEUED,
}


@dataclass(slots=True)
class BlockEvents:
    """Events as columns. `event`: one of `EVENTS`, 0 for others. `device`: major * 2^32 + minor.

    `has_failed`: of completions, whether they are of an error.
    """

    time: Ints
    thread: Ints | NDArray[np.int32]
    event: NDArray[np.int8]
    device: Ints
    operation: NDArray[np.int8]
    sector: Ints
    sectors: Ints | NDArray[np.int32]
    has_failed: NDArray[np.bool_]


def device_numbers(texts: Any) -> Ints:
    """Numbers of devices from texts such as `7,0`."""
    encoded = texts.dictionary_encode()
    numbers = []
    for text in encoded.dictionary.to_pylist():
        major, _, minor = text.partition(",")
        numbers.append((int(major[-9:]) % 2**31 << 32) + int(minor[-9:]) % 2**32)
    row_numbers: Ints = np.array(numbers, np.int64)[
        np.asarray(encoded.indices.to_numpy(zero_copy_only=False))
    ]
    return row_numbers


def device_name(number: int) -> str:
    """The text of a device's number."""
    return f"{number >> 32},{number % 2**32}"


def layers(parts: Sequence[BlockEvents], recording: LayerRecording) -> ToldLayers:
    """Block and device layers of each device; issues and completions may be missing."""
    if not parts:
        return ToldLayers()
    events = joined(parts)
    if not len(events.time):
        return ToldLayers()
    _join_partitions(events, recording)
    numbers, counts = np.unique(events.device, return_counts=True)
    layers: list[TracedLayer] = []
    remarks: list[str] = []
    if len(numbers) > MAX_DEVICES:
        busiest = np.sort(np.argsort(-counts, kind="stable")[:MAX_DEVICES])
        remarks.append(
            f"{len(numbers)} devices, {len(numbers) - MAX_DEVICES} with the fewest events left out"
        )
        numbers = numbers[busiest]
    lost = 0
    bounds = int(events.time.min()), int(events.time.max())
    for number in numbers.tolist():
        name = device_name(number)
        space = recording.names.index(f"device {name}")
        of_device = events.device == number
        has_data = events.sectors > 0
        bios = np.flatnonzero(of_device & has_data & (events.event == QUEUED))
        flushes = int((of_device & ~has_data & (events.event == ISSUED)).sum())
        block = _block(events, bios, space, name)
        if len(bios) and not (of_device & (events.event == ISSUED)).any():
            missing = _end_bios(events, block.requests, of_device & has_data, bounds)
            if missing is None:
                remarks.append(
                    f"device {name}: its {len(bios)} bios have no completions: its layer is left out, and "
                    "the search does not go below the layer above it"
                )
                continue
            layers.append(block)
        else:
            if len(bios):
                layers.append(block)
            device, missing = _device(events, of_device & has_data, space, name, bounds)
            if len(device.requests):
                device.left_out["flushes"] = flushes
                layers.append(device)
        lost += missing.lost
        remarks += [f"device {name}: {text}" for text in missing.remarks()]
    return ToldLayers(layers, remarks, lost)


def _join_partitions(events: BlockEvents, recording: LayerRecording) -> None:
    """Counts bios of a partition to its disk.

    Since Linux 5.12 a bio has the partition's number but the disk's sector, its request the disk's number.
    """
    for part, (disk, _) in recording.partitions.items():
        events.device[events.device == number_of(part)] = number_of(disk)


def number_of(name: str) -> int:
    """The number of a device from a text such as `7,0`."""
    major, _, minor = name.partition(",")
    return (int(major) << 32) + int(minor)


@dataclass(slots=True)
class _Missing:
    """Issues without a completion, completions without an issue: at the ends of the recording, or lost.

    `failed`: requests that completed with an error, wholly or in part.
    """

    open_at_end: int = 0
    open_at_start: int = 0
    never_completed: int = 0
    never_issued: int = 0
    failed: int = 0

    @property
    def lost(self) -> int:
        """Events that the recorder must have lost."""
        return self.never_completed + self.never_issued

    def remarks(self) -> list[str]:
        """Sentences for those that there are."""
        remarks = []
        if self.lost:
            remarks.append(
                f"{self.never_completed} issued requests have no completion, {self.never_issued} "
                "completions no issue: events were lost"
            )
        if self.open_at_start:
            remarks.append(f"{self.open_at_start} requests were in flight at the start of the recording")
        if self.open_at_end:
            remarks.append(f"{self.open_at_end} requests were in flight at the end of the recording")
        if self.failed:
            remarks.append(f"{self.failed} requests failed: where they did, they moved nothing")
        return remarks


def _block(events: BlockEvents, at: Ints, space: int, device: str) -> TracedLayer:
    at = at[np.argsort(events.time[at], kind="stable")]
    columns = RequestColumns.of(
        len(at),
        admit=events.time[at],
        space=np.full(len(at), space),
        start=events.sector[at] * SECTOR_BYTES,
        size=events.sectors[at].astype(np.int64) * SECTOR_BYTES,
        operation=events.operation[at],
        thread=events.thread[at],
    )
    return TracedLayer("block", columns, rank_of("block"), device)


def _end_bios(
    events: BlockEvents, columns: RequestColumns, chosen: NDArray[np.bool_], bounds_ns: tuple[int, int]
) -> _Missing | None:
    """Ends bios of a device that makes no requests (dm, md, zram) by their own completions.

    None where it reports none: without ends a bio would be outstanding until the end of the recording.
    """
    completed = np.flatnonzero(chosen & ((events.event == ENDED) | (events.event == COMPLETED)))
    completed = completed[np.argsort(events.time[completed], kind="stable")]
    if not len(completed):
        return None
    first = columns.start // SECTOR_BYTES
    begun = _Begun(columns.admit, columns.operation, first, first + columns.size // SECTOR_BYTES)
    ended = _ends(begun, events, completed)
    columns.callback[:], columns.done[:] = ended.time, ended.done
    return _missing(columns, events.time[completed[~ended.used]], bounds_ns)


def _device(
    events: BlockEvents,
    chosen: NDArray[np.bool_],
    space: int,
    device: str,
    bounds_ns: tuple[int, int],
) -> tuple[TracedLayer, _Missing]:
    """Requests from issue to completion; a request that completes in parts ends with the last."""
    issued = np.flatnonzero(chosen & (events.event == ISSUED))
    issued = issued[np.argsort(events.time[issued], kind="stable")]
    completed = np.flatnonzero(chosen & (events.event == COMPLETED))
    completed = completed[np.argsort(events.time[completed], kind="stable")]
    first = events.sector[issued]
    begun = _Begun(events.time[issued], events.operation[issued], first, first + events.sectors[issued])
    ended = _ends(begun, events, completed)
    ends = ended.time
    kept = ~_put_back(events, chosen, issued, ends)
    columns = RequestColumns.of(
        int(kept.sum()),
        admit=events.time[issued][kept],
        issue=events.time[issued][kept],
        complt=ends[kept],
        callback=ends[kept],
        space=np.full(int(kept.sum()), space),
        start=first[kept] * SECTOR_BYTES,
        size=events.sectors[issued][kept].astype(np.int64) * SECTOR_BYTES,
        done=ended.done[kept],
        operation=events.operation[issued][kept],
        thread=events.thread[issued][kept],
    )
    layer = TracedLayer("device", columns, rank_of("device"), device, stamped=True)
    return layer, _missing(columns, events.time[completed][~ended.used], bounds_ns)


def _missing(columns: RequestColumns, orphans: Ints, bounds_ns: tuple[int, int]) -> _Missing:
    """Sorts what is missing into requests in flight at the ends of the recording and lost events, and marks
    the requests whose end was lost.

    In flight at the end: no request that was issued later by more than the margin has completed, and the
    sector was not issued again; where issues were lost, too, the recording ends within the margin. At the
    start: none that completed earlier by more than the margin was issued.
    """
    done = columns.end != ABSENT
    first, last = bounds_ns
    longest = 0
    margin = min(_MARGIN_NS, int(_MARGIN_SHARE * (last - first)))
    if done.any():
        longest = int((columns.end - columns.admit)[done].max())
        first, last = int(columns.end[done].min()), int(columns.admit[done].max())
    margin = max(margin, 3 * longest)
    waiting = np.flatnonzero(~done)
    again = _issued_again(columns, waiting)
    at_start = orphans <= first + margin
    if not at_start.all():
        last = bounds_ns[1]
    at_end = (columns.admit[waiting] >= last - margin) & ~again
    columns.is_lost[waiting[~at_end]] = True
    return _Missing(
        open_at_end=int(at_end.sum()),
        open_at_start=int(at_start.sum()),
        never_completed=int((~at_end).sum()),
        never_issued=int((~at_start).sum()),
        failed=int((columns.done >= 0).sum()),
    )


def _issued_again(columns: RequestColumns, waiting: Ints) -> NDArray[np.bool_]:
    """Mask of open requests at whose sector a later request was issued."""
    order = np.lexsort((columns.admit, columns.start))
    starts = columns.start[order]
    later = np.zeros(len(order), np.bool_)
    later[order[:-1]] = starts[1:] == starts[:-1]
    is_again: NDArray[np.bool_] = later[waiting]
    return is_again


def _put_back(events: BlockEvents, chosen: NDArray[np.bool_], issued: Ints, ends: Ints) -> NDArray[np.bool_]:
    """Issues that did not complete because the request went back to the queue; it is issued once more."""
    again = np.flatnonzero(chosen & (events.event == REQUEUED))
    put_back = np.zeros(len(issued), np.bool_)
    if len(again):
        at = np.flatnonzero(ends == ABSENT)
        ours, theirs = issued[at], again
        keys: _Keys = [(column[ours], column[theirs]) for column in (events.operation, events.sector)]
        put_back[at[_next(keys, events.time[ours], events.time[theirs]) >= 0]] = True
    return put_back


@dataclass(slots=True)
class _Begun:
    """Requests as columns: time of their issue, operation, first sector, and the one behind the last."""

    time: Ints
    operation: NDArray[np.int8]
    first: Ints
    behind: Ints


@dataclass(slots=True)
class _RequestEnds:
    """`time`: the end of each request, `ABSENT` if none. `done`: the bytes that it moved, -1 for all of them.
    `used`: mask of the completions that are of a request.
    """

    time: Ints
    done: Ints
    used: NDArray[np.bool_]


def _ends(begun: _Begun, events: BlockEvents, completed: Ints) -> _RequestEnds:
    """How requests ended.

    Completions of the whole length come first. A request that completed only in part has no end, unless its
    rest was issued again.
    """
    ends = np.full(len(begun.time), ABSENT)
    reached = begun.first.copy()
    used = np.zeros(len(completed), np.bool_)
    operation, sector = events.operation[completed], events.sector[completed]
    length, time = events.sectors[completed].astype(np.int64), events.time[completed]
    keys: _Keys = [(begun.operation, operation), (begun.first, sector), (begun.behind - begun.first, length)]
    pairs = _next(keys, begun.time, time)
    whole = pairs >= 0
    used[pairs[whole]] = True
    lost = np.zeros(len(begun.time), np.int64)  # sectors that an error left where they were
    error = np.where(events.has_failed[completed], length, 0)
    lost[whole] = error[pairs[whole]]
    ends[whole], reached[whole] = time[pairs[whole]], begun.behind[whole]
    open_ = np.flatnonzero(~whole)
    for _ in range(64):  # one round for each part that a request completes in
        left = np.flatnonzero(~used)
        if not len(open_) or not len(left):
            break
        keys = [(begun.operation[open_], operation[left]), (reached[open_], sector[left])]
        pairs = _next(keys, np.maximum(begun.time[open_], ends[open_]), time[left])
        hit = (pairs >= 0) & (length[left[pairs]] <= (begun.behind - reached)[open_])
        if not hit.any():
            break
        ours, theirs = open_[hit], left[pairs[hit]]
        used[theirs] = True
        lost[ours] += error[theirs]
        ends[ours] = time[theirs]
        reached[ours] += length[theirs]
        open_ = open_[reached[open_] < begun.behind[open_]]
    partial = open_[ends[open_] != ABSENT]
    if len(partial):
        again = set(zip(begun.operation.tolist(), begun.first.tolist(), begun.behind.tolist(), strict=True))
        rest = zip(begun.operation[partial], reached[partial], begun.behind[partial], strict=True)
        ends[partial[[tuple(map(int, request)) not in again for request in rest]]] = ABSENT
    done = np.where(lost > 0, (begun.behind - begun.first - lost) * SECTOR_BYTES, -1)
    return _RequestEnds(ends, done, used)


def _next(keys: _Keys, since: Ints, time: Ints) -> Ints:
    """For each request which event is the next of its keys, not before `since`; -1 if none is.

    `keys`: values of the requests, and of the events at the times `time`. Of several open requests with the
    same keys the latest before an event gets it.
    """
    both = [np.concatenate(columns) for columns in keys]
    is_done = np.repeat([False, True], [len(since), len(time)])
    order = np.lexsort((is_done, np.concatenate([since, time]), *both))
    places = np.full(len(since), -1, np.int64)
    here, then = order[:-1], order[1:]
    pair = ~is_done[here] & is_done[then]
    for values in both:
        pair &= values[here] == values[then]
    places[here[pair]] = then[pair] - len(since)
    return places
