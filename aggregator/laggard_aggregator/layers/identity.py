"""Identity of system calls: descriptor to file, by the recording's description or the layer above."""

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.layers.columns import ABSENT, Ints, LayerRecording, TracedLayer

_MARGIN_NS = 10_000
_Descriptor = tuple[int, int]


def data_calls(layers: list[TracedLayer], recording: LayerRecording) -> None:
    """Keeps the calls on data files, and names their files.

    Data files are those that the recording's description names, else those of the layer above, by its
    descriptors
    or, where it has none, by equal ranges. Without either all calls are kept, with a space a descriptor.
    """
    at = next((i for i, layer in enumerate(layers) if layer.name == "syscall"), None)
    if at is None:
        return
    calls = layers[at]
    above = next((layer for layer in reversed(layers[:at]) if (layer.requests.start >= 0).any()), None)
    if (calls.requests.space >= 0).any():
        _by_path(calls, above, recording)
        return
    files = _files(above, calls, recording)
    key, groups = _groups(calls)
    if not files:
        calls.requests.space[:] = np.array(
            [recording.names.index(f"descriptor {process}:{fd}") for process, fd in groups], np.int32
        )[key]
        return
    spaces = np.array([files.get(group, -1) for group in groups], np.int32)[key]
    kept = (spaces >= 0) & _within(above, calls)
    calls.requests.space[:] = spaces
    left = int((~kept).sum())
    if left:
        calls.left_out["calls on other descriptors"] = left
        calls.requests = calls.requests.where(kept)


def _by_path(calls: TracedLayer, above: TracedLayer | None, recording: LayerRecording) -> None:
    """Keeps the calls on files that the layer above, or an extent map, knows by name; all if none of them
    is.
    """
    names = recording.names.names
    wanted: dict[str, int] = {}
    if above is not None:
        wanted = {
            _base(names[space]): space for space in np.unique(above.requests.space).tolist() if space >= 0
        }
    wanted = wanted or {each.file: -1 for each in recording.extents}
    spaces = calls.requests.space
    table = np.full(len(names) + 1, -1, np.int32)
    for space in np.unique(spaces[spaces >= 0]).tolist():
        known = wanted.get(_base(names[space]))
        if known is not None:
            table[space] = space if known < 0 else known
    found = table[spaces]
    kept = found >= 0
    if kept.any():
        spaces[:] = found
        calls.left_out["calls on other files"] = int((~kept).sum())
        calls.requests = calls.requests.where(kept)
    else:
        calls.requests = calls.requests.where(spaces >= 0)


def _base(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _within(above: TracedLayer | None, calls: TracedLayer) -> NDArray[np.bool_]:
    """Calls in the time that the layer above covers; a descriptor's number is used again before and after."""
    begin = calls.requests.begin_ns
    if above is None or above.clock == calls.clock:
        return np.ones(len(begin), np.bool_)
    columns = above.requests
    ends = columns.end[columns.end != ABSENT]
    first, last = (
        int(columns.begin_ns.min()) - _MARGIN_NS,
        int(ends.max() if len(ends) else columns.begin_ns.max()),
    )
    inside: NDArray[np.bool_] = (begin >= first) & (begin <= last + _MARGIN_NS)
    return inside if inside.any() else ~inside


def _groups(calls: TracedLayer) -> tuple[Ints, list[_Descriptor]]:
    """Number of each call's descriptor, and the descriptors as (process, fd)."""
    columns = calls.requests
    owner = np.where(columns.process >= 0, columns.process, columns.thread)
    packed = (owner << 32) + columns.fd.astype(np.int64).clip(0)
    known, inverse = np.unique(packed, return_inverse=True)
    return inverse.astype(np.int64), [(int(v) >> 32, int(v) & 0xFFFFFFFF) for v in known]


def _files(
    above: TracedLayer | None, calls: TracedLayer, recording: LayerRecording
) -> dict[_Descriptor, int]:
    """The file of each descriptor, as an index of a name."""
    found = _from_layer(above, calls) if above is not None else {}
    if not found:
        found = _described(above, recording)
    if above is not None and (not found or (calls.requests.process < 0).any()):
        by_range = _from_ranges(above, calls)
        of_fd = {fd: space for (_, fd), space in found.items()}
        for each, space in by_range.items():
            if not found or each[1] in of_fd:
                found.setdefault(each, of_fd.get(each[1], space))
    return found


def _described(above: TracedLayer | None, recording: LayerRecording) -> dict[_Descriptor, int]:
    """Descriptors of the recording's description: by their paths, else all of the one file that is known."""
    known = {_base(name): at for at, name in enumerate(recording.names.names)}
    files = {each.file for each in recording.extents}
    default = -1
    if above is not None and (above.requests.space >= 0).any():
        default = int(np.bincount(above.requests.space.clip(0)).argmax())
    elif len(recording.extents) == 1:
        default = recording.names.index(recording.extents[0].file)
    found: dict[_Descriptor, int] = {}
    for each, path in recording.descriptors.items():
        name = _base(path)
        if name:
            if name in files or name in known:
                found[each] = known[name] if name in known else recording.names.index(name)
        else:
            other = f"descriptor {each[0]}:{each[1]}"
            found[each] = default if default >= 0 else recording.names.index(other)
    return found


def _from_layer(above: TracedLayer, calls: TracedLayer) -> dict[_Descriptor, int]:
    """Descriptors that the requests of the layer above name."""
    columns = above.requests
    at = np.flatnonzero((columns.fd >= 0) & (columns.space >= 0) & (columns.thread >= 0))
    if not len(at):
        return {}
    packed = np.unique(np.stack([columns.thread[at], columns.fd[at], columns.space[at]]), axis=1)
    owners = np.unique(np.stack([calls.requests.thread, calls.requests.process]), axis=1)
    process_of = {thread: process for thread, process in owners.T.tolist() if process >= 0}
    return {(process_of.get(thread, thread), fd): space for thread, fd, space in packed.T.tolist()}


def _from_ranges(above: TracedLayer, calls: TracedLayer) -> dict[_Descriptor, int]:
    """Descriptors of which most calls have a range and operation that the layer above asked for."""
    columns = above.requests
    asked = _ranges(columns.operation, columns.start, columns.size)
    spaces = np.unique(columns.space[columns.space >= 0])
    space = int(spaces[0]) if len(spaces) else -1
    key, groups = _groups(calls)
    mine = _ranges(calls.requests.operation, calls.requests.start, calls.requests.size)
    known = np.isin(mine, asked)
    shares: dict[_Descriptor, list[int]] = defaultdict(list)
    hits = np.bincount(key, weights=known, minlength=len(groups))
    totals = np.bincount(key, minlength=len(groups))
    for group, hit, total in zip(groups, hits.tolist(), totals.tolist(), strict=True):
        shares[group] = [int(hit), int(total)]
    return {group: max(space, 0) for group, (hit, total) in shares.items() if hit * 2 > total}


def _ranges(operation: NDArray[np.int8], start: Ints, size: Ints) -> NDArray[np.int64]:
    mixed = start.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + size.astype(np.uint64)
    return (mixed ^ (operation.astype(np.uint64) << np.uint64(61))).view(np.int64)
