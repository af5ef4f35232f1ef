"""Requests of files, or of a device, placed on the device below by extent maps."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from laggard_aggregator.layers.columns import ExtentMap, Ints, LayerRecording, RequestColumns, TracedLayer
from laggard_aggregator.layers.file_names import SameFiles, same_files
from laggard_aggregator.layers.matching import Matching, MatchKind, Pieces, match_by_address
from laggard_aggregator.layers.thread_matching import match_by_size, match_by_thread

_FOUND_SHARE = 0.1
_MOST_GUESSES = 16
"""Extent maps that are tried where no name tells the right one."""


def match_through_map(
    upper: RequestColumns, lower: RequestColumns, above: TracedLayer, device: str, recording: LayerRecording
) -> tuple[Matching, int]:
    """Matches files, or a device, with `device` below them by the extents of the files there.

    Also the number of requests over several extents.
    """
    finished = replace(
        upper, size=np.where((upper.done >= 0) & (upper.done < upper.size), upper.done, upper.size)
    )
    best: tuple[Matching, int] | None = None
    best_share = 0.0
    for pieces, holes, several in placements(finished, above, device, recording):
        matching = match_by_address(finished, lower, pieces, holes)
        share = float(np.isin(matching.kind, (MatchKind.NONE, MatchKind.HOLE), invert=True).mean())
        if best is None or share > best_share:
            best, best_share = (matching, several), share
    if best is not None and (best_share > _FOUND_SHARE or _is_certain(above, device, recording)):
        return best
    if above.device:
        return match_by_size(upper, lower), 0
    return match_by_thread(replace(upper, process=np.full(len(upper), -1, np.int64)), lower), 0


def _is_certain(above: TracedLayer, device: str, recording: LayerRecording) -> bool:
    """True when the maps are known to be those of the files of the requests: no other means is better."""
    return not above.device and any(extent.device == device for extent in recording.extents)


def named_maps(upper: RequestColumns, recording: LayerRecording) -> tuple[dict[int, ExtentMap], SameFiles]:
    """The extent map of each space of the requests."""
    names = recording.names.names
    spaces = {names[space]: space for space in np.unique(upper.space).tolist() if space >= 0}
    maps = {extent.file: extent for extent in recording.extents}
    same = same_files(spaces, maps)
    return {spaces[name]: maps[known] for name, known in same.matches.items()}, same


def placements(
    upper: RequestColumns, above: TracedLayer, device: str, recording: LayerRecording
) -> Iterator[tuple[Pieces, Ints, int]]:
    """Ways to place the upper requests on the device: by the maps of their files, or by any map of it.

    Each as pieces on the device, the bytes of each request that have none, and the number of requests in
    several pieces.
    """
    maps = [extent for extent in recording.extents if extent.device in ("", device)]
    if above.device:
        backing = recording.backing.get(above.device)
        exact = [extent for extent in maps if extent.file == backing]
        for extent in (exact or maps)[:_MOST_GUESSES]:
            yield _placed(upper, {-1: extent})
        return
    named, same = named_maps(upper, recording)
    if named or same.ambiguous:
        here = {space: extent for space, extent in named.items() if extent.device in ("", device)}
        if here:
            yield _placed(upper, here)
        return
    for extent in maps[:_MOST_GUESSES]:
        yield _placed(upper, {-1: extent})


def _placed(upper: RequestColumns, maps: dict[int, ExtentMap]) -> tuple[Pieces, Ints, int]:
    """Pieces of the requests on the device; `maps` by space, -1 is for all requests."""
    owners, starts, ends = [], [], []
    for space, extents in maps.items():
        at = np.flatnonzero((upper.start >= 0) & (upper.size > 0) & ((space < 0) | (upper.space == space)))
        first = np.searchsorted(extents.logical, upper.start[at], side="right") - 1
        stop = np.searchsorted(extents.logical, upper.start[at] + upper.size[at], side="left")
        first = first.clip(0)
        counts = (stop - first).clip(0)
        owner = np.repeat(at, counts)
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        extent = np.repeat(first, counts) + within
        low = np.maximum(upper.start[owner], extents.logical[extent])
        high = np.minimum(
            upper.start[owner] + upper.size[owner], extents.logical[extent] + extents.length[extent]
        )
        real = high > low
        shift = extents.physical[extent] - extents.logical[extent]
        owners.append(owner[real])
        starts.append((low + shift)[real])
        ends.append((high + shift)[real])
    pieces = Pieces(np.concatenate(owners), np.concatenate(starts), np.concatenate(ends))
    covered = np.bincount(pieces.owner, weights=(pieces.end - pieces.start), minlength=len(upper)).astype(
        np.int64
    )
    several = int((np.bincount(pieces.owner, minlength=len(upper)) > 1).sum())
    return pieces, upper.size - covered, several
