"""Identity of system calls: descriptor to file, by the recording's description or the layer above."""

from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.layers.columns import ABSENT, DescriptorPath, Ints, LayerRecording, TracedLayer
from laggard_aggregator.layers.file_names import base, same_files
from laggard_aggregator.layers.interval_index import last_at_or_before
from laggard_aggregator.layers.readers.system_calls import descriptor_keys

_MARGIN_NS = 10_000
_BRIEF_NS = 50_000_000
"""A file that was open for less may have been missed between two looks at the descriptors."""
_Descriptor = tuple[int, int]
_Span = tuple[int, int | None]


def data_calls(layers: list[TracedLayer], recording: LayerRecording, remarks: list[str]) -> None:
    """Keeps the calls on data files, and names their files.

    Data files are those that the recording's description names, else those of the layer above, by its
    descriptors or, where it has none, by equal ranges. Without either all calls are kept, with a space a
    descriptor.
    """
    at = next((i for i, layer in enumerate(layers) if layer.name == "syscall"), None)
    if at is None:
        return
    calls = layers[at]
    for layer in layers[:at]:
        _name_by_descriptor(layer, calls, recording)
    _name_calls(calls, layers[:at], recording, remarks)
    for layer in layers[at + 1 :]:
        if layer.name == "fs":
            _follow_names(layer, calls, recording)


def _follow_names(layer: TracedLayer, calls: TracedLayer, recording: LayerRecording) -> None:
    """Keeps the requests of a file system on the files of the calls, by the names that those have."""
    names = recording.names.names
    mine, theirs = (
        {names[space]: space for space in np.unique(stage.requests.space).tolist() if space >= 0}
        for stage in (layer, calls)
    )
    if not mine or not theirs:
        return
    same = same_files(mine, theirs)
    table = np.full(len(names) + 1, -1, np.int32)
    for name, known in same.matches.items():
        table[mine[name]] = theirs[known]
    spaces = table[layer.requests.space]
    layer.requests.space[:] = spaces
    layer.left_out["requests on other files"] = int((spaces < 0).sum())
    layer.requests = layer.requests.where(spaces >= 0)


def _name_calls(
    calls: TracedLayer, layers: list[TracedLayer], recording: LayerRecording, remarks: list[str]
) -> None:
    """Keeps the calls on data files, and names their files."""
    above = next((layer for layer in reversed(layers) if (layer.requests.start >= 0).any()), None)
    if (calls.requests.space >= 0).any():
        _by_path(calls, above, recording, remarks)
        return
    if recording.descriptors and above is None:
        spaces = _described_spaces(calls, recording, None, remarks)
    else:
        spaces = _spaces(above, calls, recording, remarks)
    if spaces is None:
        key, groups = _groups(calls)
        calls.requests.space[:] = np.array(
            [recording.names.index(f"descriptor {process}:{fd}") for process, fd in groups], np.int32
        )[key]
        return
    kept = (spaces >= 0) & _within(above, calls)
    calls.requests.space[:] = spaces
    left = int((~kept).sum())
    if left:
        calls.left_out["calls on other descriptors"] = left
        calls.requests = calls.requests.where(kept)


def _name_by_descriptor(layer: TracedLayer, calls: TracedLayer, recording: LayerRecording) -> None:
    """Gives the requests of a layer the whole paths that the description has for their descriptors.

    A program that stamps base names alone would make one file of `rank0/out` and `rank1/out`. Base names that
    one file alone has are left, as other layers may have them, too.
    """
    columns = layer.requests
    at = np.flatnonzero((columns.fd >= 0) & (columns.space >= 0) & (columns.thread >= 0))
    if not len(at) or not recording.descriptors:
        return
    paths = {row.path for rows in recording.descriptors.values() for row in rows if row.path}
    known = Counter(base(path) for path in paths)
    process_of = _process_of(calls)
    packed, inverse = np.unique(
        np.stack([columns.thread[at], columns.fd[at].astype(np.int64), columns.space[at].astype(np.int64)]),
        axis=1,
        return_inverse=True,
    )
    renamed = []
    for thread, fd, space in packed.T.tolist():
        name = recording.names.names[space]
        own_paths = {row.path for row in recording.descriptors.get((process_of.get(thread, thread), fd), ())}
        fitting = [path for path in own_paths if base(path) == base(name)]
        whole = "/" not in name and len(fitting) == 1 and known[name] > 1
        renamed.append(recording.names.index(fitting[0]) if whole else space)
    columns.space[at] = np.array(renamed, np.int32)[inverse.reshape(-1)]


def _by_path(
    calls: TracedLayer, above: TracedLayer | None, recording: LayerRecording, remarks: list[str]
) -> None:
    """Keeps the calls on files that the layer above, or an extent map, knows by name; all if none is."""
    names = recording.names.names
    wanted: dict[str, int] = {}
    if above is not None:
        wanted = {names[space]: space for space in np.unique(above.requests.space).tolist() if space >= 0}
    wanted = wanted or {extent.file: -1 for extent in recording.extents}
    spaces = calls.requests.space
    mine = {names[space]: space for space in np.unique(spaces[spaces >= 0]).tolist()}
    same = same_files(mine, wanted)
    _say(remarks, same.remarks())
    table = np.full(len(names) + 1, -1, np.int32)
    for name, space in mine.items():
        if name in same.matches:
            known = wanted[same.matches[name]]
            table[space] = space if known < 0 else known
        elif name in same.ambiguous:
            table[space] = space
    targets = table[spaces]
    kept = targets >= 0
    if kept.any():
        spaces[:] = targets
        calls.left_out["calls on other files"] = int((~kept).sum())
        calls.requests = calls.requests.where(kept)
    else:
        calls.requests = calls.requests.where(spaces >= 0)


def _say(remarks: list[str], said: Iterable[str]) -> None:
    remarks.extend(remark for remark in said if remark not in remarks)


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
    known, inverse = np.unique(descriptor_keys(calls.requests), return_inverse=True)
    return inverse.astype(np.int64), [(int(v) >> 32, int(v) & 0xFFFFFFFF) for v in known]


def _process_of(calls: TracedLayer) -> dict[int, int]:
    columns = calls.requests
    known = (columns.process >= 0) & (columns.thread >= 0)
    _, first = np.unique((columns.thread[known] << 32) + columns.process[known], return_index=True)
    threads, processes = columns.thread[known][first], columns.process[known][first]
    return dict(zip(threads.tolist(), processes.tolist(), strict=True))


def _spaces(
    above: TracedLayer | None, calls: TracedLayer, recording: LayerRecording, remarks: list[str]
) -> NDArray[np.int32] | None:
    """The file of each call, -1 for calls on other files; None where nothing identifies files."""
    space_of = _from_layer(above, calls) if above is not None else {}
    if not space_of and recording.descriptors:
        described = _described_spaces(calls, recording, above, remarks)
        if described is not None and ((described >= 0).any() or above is None):
            return described
    if above is not None and (not space_of or (calls.requests.process < 0).any()):
        by_range = _from_ranges(above, calls)
        of_fd = {fd: space for (_, fd), space in space_of.items()}
        for descriptor, space in by_range.items():
            if not space_of or descriptor[1] in of_fd:
                space_of.setdefault(descriptor, of_fd.get(descriptor[1], space))
    if not space_of:
        return None
    key, groups = _groups(calls)
    spaces = np.array([space_of.get(group, -1) for group in groups], np.int32)[key]
    if above is not None:
        _follow_changes(above, calls, spaces)
    return spaces


def _follow_changes(above: TracedLayer, calls: TracedLayer, spaces: NDArray[np.int32]) -> None:
    """Sets the files of descriptors that stood for several in turn: that of the latest request above."""
    columns = above.requests
    at = np.flatnonzero((columns.fd >= 0) & (columns.space >= 0) & (columns.thread >= 0))
    process_of = _process_of(calls)
    threads, inverse = np.unique(columns.thread[at], return_inverse=True)
    owner = np.array([process_of.get(thread, thread) for thread in threads.tolist()], np.int64)[inverse]
    key = (owner << 32) + columns.fd[at]
    pairs = np.unique(np.stack([key, columns.space[at].astype(np.int64)]), axis=1)[0]
    changing = np.unique(pairs[1:][pairs[1:] == pairs[:-1]])
    if not len(changing):
        return
    mine = descriptor_keys(calls.requests)
    chosen = np.flatnonzero(np.isin(mine, changing))
    order = np.lexsort((columns.begin_ns[at], key))
    latest = last_at_or_before(
        key[order].astype(np.uint64),
        columns.begin_ns[at][order],
        mine[chosen].astype(np.uint64),
        calls.requests.begin_ns[chosen],
    )
    spaces[chosen] = np.where(latest >= 0, columns.space[at][order][latest], -1)


def _described_spaces(
    calls: TracedLayer, recording: LayerRecording, above: TracedLayer | None, remarks: list[str]
) -> NDArray[np.int32] | None:
    """The file of each call by the description, each time between two opens of a descriptor by itself."""
    paths = sorted({row.path for looks in recording.descriptors.values() for row in looks if row.path})
    if above is not None:
        used = np.unique(above.requests.space).tolist()
        known = [recording.names.names[space] for space in used if space >= 0]
    else:
        known = [extent.file for extent in recording.extents]
    same = same_files(paths, known)
    _say(remarks, same.remarks())
    index = {
        path: recording.names.index(same.matches.get(path, path) if above is not None else path)
        for path in paths
        if path in same.matches or path in same.ambiguous or not known
    }
    default = _default_file(above, recording)
    columns = calls.requests
    keys = descriptor_keys(columns)
    epoch, spans = _epochs(calls, keys)
    _, number = np.unique(keys, return_inverse=True)
    _, first, inverse = np.unique(
        number * (int(epoch.max(initial=0)) + 2) + epoch, return_index=True, return_inverse=True
    )
    chosen = np.full(len(first), -1, np.int32)
    unseen = 0
    counts = np.bincount(inverse, minlength=len(chosen))
    for at, key in enumerate(keys[first].tolist()):
        descriptor = key >> 32, key & 0xFFFFFFFF
        looks = recording.descriptors.get(descriptor)
        if looks is None:
            continue
        span = None if spans is None else _span_at(spans, int(first[at]))
        path = _path_within(looks, span)
        if path is None:
            unseen += int(counts[at])
        elif path:
            chosen[at] = index.get(path, -1)
        else:
            other = f"descriptor {descriptor[0]}:{descriptor[1]}"
            chosen[at] = default if default >= 0 else recording.names.index(other)
    if unseen:
        remarks.append(f"{unseen} calls on descriptors whose file is not known were left out (see --file)")
    return chosen[inverse] if (chosen >= 0).any() else None


def _epochs(calls: TracedLayer, keys: Ints) -> tuple[Ints, tuple[Ints, Ints] | None]:
    """Number of the open or close before each call, and the times of it and of the next; `ABSENT` for none.

    No times where the trace has no opens.
    """
    if calls.openings is None or not len(calls.openings[0]):
        return np.zeros(len(keys), np.int64), None
    order = np.lexsort((calls.openings[1], calls.openings[0]))
    key, time = calls.openings[0][order], calls.openings[1][order]
    before = last_at_or_before(key.astype(np.uint64), time, keys.astype(np.uint64), calls.requests.begin_ns)
    after = np.where(before >= 0, before + 1, np.searchsorted(key, keys)).clip(0, len(key))
    same = after < len(key)
    same[same] = key[after[same]] == keys[same]
    since = np.where(before >= 0, time[before], ABSENT)
    until = np.where(same, time[np.minimum(after, len(key) - 1)], ABSENT)
    return before, (since, until)


def _span_at(spans: tuple[Ints, Ints], at: int) -> _Span:
    until = int(spans[1][at])
    return int(spans[0][at]), None if until == ABSENT else until


def _path_within(looks: list[DescriptorPath], span: _Span | None) -> str | None:
    """The path that a descriptor stood for in a time; None if it was not seen then, or stood for several."""
    paths = {look.path for look in looks}
    if span is None or all(look.first_ns is None for look in looks):
        return next(iter(paths)) if len(paths) == 1 else None
    since, until = span
    is_brief = until is not None and since != ABSENT and until - since < _BRIEF_NS
    fitting = set()
    for look in looks:
        first = ABSENT if look.first_ns is None else look.first_ns
        last = first if look.last_ns is None else look.last_ns
        inside = any(since <= time and (until is None or time < until) for time in (first, last))
        around = first <= since and until is not None and last >= until
        if inside or (around and not is_brief):
            fitting.add(look.path)
    return next(iter(fitting)) if len(fitting) == 1 else None


def _default_file(above: TracedLayer | None, recording: LayerRecording) -> int:
    """The file of descriptors without a path: the one of the layer above, or the only one with a map."""
    if above is not None and (above.requests.space >= 0).any():
        return int(np.bincount(above.requests.space.clip(0)).argmax())
    if len(recording.extents) == 1:
        return recording.names.index(recording.extents[0].file)
    return -1


def _from_layer(above: TracedLayer, calls: TracedLayer) -> dict[_Descriptor, int]:
    """Descriptors that the requests of the layer above name."""
    columns = above.requests
    at = np.flatnonzero((columns.fd >= 0) & (columns.space >= 0) & (columns.thread >= 0))
    if not len(at):
        return {}
    packed = np.unique(np.stack([columns.thread[at], columns.fd[at], columns.space[at]]), axis=1)
    process_of = _process_of(calls)
    return {(process_of.get(thread, thread), fd): space for thread, fd, space in packed.T.tolist()}


def _from_ranges(above: TracedLayer, calls: TracedLayer) -> dict[_Descriptor, int]:
    """Descriptors most of whose calls have a range and operation that the layer above asked for."""
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
