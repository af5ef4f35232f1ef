"""Block events: bios queued, requests issued to the device and completed, paired by device and sector."""

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
    TracedLayer,
    rank_of,
)
from laggard_aggregator.layers.readers.text_lines import joined

SECTOR_BYTES = 512
QUEUED, ISSUED, COMPLETED, REQUEUED = 1, 2, 3, 4
EVENTS = {"bio_queue": QUEUED, "rq_issue": ISSUED, "rq_complete": COMPLETED, "rq_requeue": REQUEUED}


@dataclass(slots=True)
class BlockEvents:
    """Events as columns. `event`: one of `EVENTS`, 0 for others. `device`: major * 2^32 + minor."""

    time: Ints
    thread: Ints | NDArray[np.int32]
    event: NDArray[np.int8]
    device: Ints
    operation: NDArray[np.int8]
    sector: Ints
    sectors: Ints | NDArray[np.int32]


def device_numbers(texts: Any) -> Ints:
    """Numbers of devices from texts such as `7,0`."""
    encoded = texts.dictionary_encode()
    numbers = []
    for text in encoded.dictionary.to_pylist():
        major, _, minor = text.partition(",")
        numbers.append((int(major) % 2**31 << 32) + int(minor) % 2**32)
    found: Ints = np.array(numbers, np.int64)[np.asarray(encoded.indices.to_numpy(zero_copy_only=False))]
    return found


def device_name(number: int) -> str:
    """The text of a device's number."""
    return f"{number >> 32},{number % 2**32}"


def layers(
    parts: Sequence[BlockEvents], recording: LayerRecording
) -> tuple[list[TracedLayer], list[str], int]:
    """Block and device layers of each device, remarks, and the number of lost issues and completions."""
    if not parts:
        return [], [], 0
    events = joined(parts)
    found: list[TracedLayer] = []
    remarks: list[str] = []
    lost = 0
    for number in np.unique(events.device).tolist():
        name = device_name(number)
        space = recording.names.index(f"device {name}")
        of_device = events.device == number
        has_data = events.sectors > 0
        bios = np.flatnonzero(of_device & has_data & (events.event == QUEUED))
        flushes = int((of_device & ~has_data & (events.event == ISSUED)).sum())
        if len(bios):
            found.append(_block(events, bios, space, name))
        device, missing = _device(events, of_device & has_data, space, name)
        if len(device.requests):
            device.left_out["flushes"] = flushes
            found.append(device)
        if missing:
            lost += sum(missing)
            remarks.append(
                f"device {name}: {missing[0]} issued requests have no completion, {missing[1]} "
                "completions no issue"
            )
    return found, remarks, lost


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


def _device(
    events: BlockEvents, chosen: NDArray[np.bool_], space: int, device: str
) -> tuple[TracedLayer, tuple[int, int] | None]:
    """Requests from issue to completion; a request that completes in parts ends with the last.

    Also the number of issues without a completion, and of completions without an issue, if there are any. At
    the ends of the recording both are normal; such requests are left out of the count.
    """
    issued = np.flatnonzero(chosen & (events.event == ISSUED))
    issued = issued[np.argsort(events.time[issued], kind="stable")]
    completed = np.flatnonzero(chosen & (events.event == COMPLETED))
    completed = completed[np.argsort(events.time[completed], kind="stable")]
    first = events.sector[issued]
    behind = first + events.sectors[issued]
    ends = np.full(len(issued), ABSENT)
    reached = first.copy()
    open_ = np.arange(len(issued))
    used = np.zeros(len(completed), np.bool_)
    for _ in range(64):  # one round for each part that a request completes in
        since = np.maximum(events.time[issued[open_]], ends[open_])
        pairs = _next_completion(reached[open_], since, events, completed[~used])
        hit = pairs >= 0
        if not hit.any():
            break
        ours, theirs = open_[hit], np.flatnonzero(~used)[pairs[hit]]
        used[theirs] = True
        ends[ours] = np.maximum(ends[ours], events.time[completed[theirs]])
        reached[ours] += events.sectors[completed[theirs]]
        open_ = open_[reached[open_] < behind[open_]]
        if not len(open_):
            break
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
        operation=events.operation[issued][kept],
        thread=events.thread[issued][kept],
    )
    layer = TracedLayer("device", columns, rank_of("device"), device, stamped=True)
    without = int((columns.end == ABSENT).sum())
    orphans = int((~used).sum())
    if len(issued) and orphans:
        orphans -= int((~used & (events.time[completed] < events.time[issued[0]])).sum())
    return layer, (without, orphans) if without or orphans else None


def _put_back(events: BlockEvents, chosen: NDArray[np.bool_], issued: Ints, ends: Ints) -> NDArray[np.bool_]:
    """Issues that did not complete because the request went back to the queue; it is issued once more."""
    again = np.flatnonzero(chosen & (events.event == REQUEUED))
    found = np.zeros(len(issued), np.bool_)
    if len(again):
        at = np.flatnonzero(ends == ABSENT)
        pairs = _next_completion(events.sector[issued[at]], events.time[issued[at]], events, again)
        found[at[pairs >= 0]] = True
    return found


def _next_completion(sector: Ints, since: Ints, events: BlockEvents, completed: Ints) -> Ints:
    """For each request which of `completed` is the next at `sector`, not before its issue; -1 if none is.

    Of several open requests at one sector the latest issue before a completion gets it.
    """
    sectors = np.concatenate([sector, events.sector[completed]])
    times = np.concatenate([since, events.time[completed]])
    is_done = np.repeat([False, True], [len(sector), len(completed)])
    order = np.lexsort((is_done, times, sectors))
    found = np.full(len(sector), -1, np.int64)
    here, then = order[:-1], order[1:]
    pair = ~is_done[here] & is_done[then] & (sectors[here] == sectors[then])
    found[here[pair]] = then[pair] - len(sector)
    return found
