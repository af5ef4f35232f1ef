"""Boundaries: two adjacent layers on one clock, matched by the best means there is."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.layers import clocks
from laggard_aggregator.layers.columns import ABSENT, Ints, LayerRecording, RequestColumns, TracedLayer
from laggard_aggregator.layers.interval_index import FAR
from laggard_aggregator.layers.matching import Matching, MatchKind, match_by_address
from laggard_aggregator.layers.placement import match_through_map, named_maps, placements
from laggard_aggregator.layers.thread_matching import match_by_thread

_GOOD_SHARE = 0.5
_BETTER = 1.5


@dataclass(slots=True)
class Boundary:
    """Two adjacent layers. Times of each upper request below it, ns, `ABSENT` where it has no lower one.

    `offset_ns` was added to the lower layer's times. `refused`: reason for no matching, or empty. `several`:
    upper requests over two or more extents. `chosen`: upper requests that may go there; those on files of
    another device do not.
    """

    upper: int
    lower: int
    matching: Matching
    issue: Ints
    complt: Ints
    chosen: NDArray[np.bool_]
    offset_ns: int = 0
    uncertainty_ns: int = 0
    refused: str = ""
    several: int = 0

    @property
    def linked(self) -> NDArray[np.bool_]:
        """Upper requests that waited for a lower one: nested, or in flight when they were admitted."""
        linked: NDArray[np.bool_] = (self.issue != ABSENT) & (self.complt != ABSENT)
        return linked

    def share(self, kind: MatchKind) -> float:
        """Share of the upper requests that may go there of this kind."""
        mine = self.matching.kind[self.chosen]
        return float((mine == kind).mean()) if len(mine) else 0.0

    def linked_share(self) -> float:
        """Share of the upper requests that may go there and wait for a lower one."""
        mine = self.linked[self.chosen]
        return float(mine.mean()) if len(mine) else 0.0


def matched_boundary(
    layers: list[TracedLayer], upper: int, lower: int, recording: LayerRecording, remarks: list[str]
) -> Boundary:
    """Matches a layer with one below it."""
    above, below = layers[upper], layers[lower]
    slack = _slack(above, below)
    offset = _offset(above, below, recording, slack)
    if offset.offset_ns:
        for layer in layers[lower:]:
            if layer.clock == below.clock:
                layer.requests = layer.requests.shifted(offset.offset_ns)
        seconds, way = offset.offset_ns / 1e9, offset.uncertainty_ns / 1e6
        remarks.append(
            f"clock of {below.label}: {seconds:+.6f} s were added to its times (estimated, to within "
            f"{way:.3f} ms)"
        )
    if not offset.compared and above.clock != below.clock and not _one_machine(above, below, recording):
        remarks.append(
            f"clocks of {above.label} and {below.label} were not compared: fewer than {clocks.MIN_PAIRS} "
            "requests that both have once. If they differ, kinds of match and times between are wrong"
        )
    if offset.remark:
        remarks.append(f"{below.label}: {offset.remark}")
    if offset.refused:
        remarks.append(f"{above.label} and {below.label} were not matched: {offset.refused}")
        matching = _nothing(above.requests, below.requests)
        several = 0
    else:
        matching, several = _match(above, below, recording, slack)
        if matching.refused:
            offset = replace(offset, refused=matching.refused)
            remarks.append(f"{above.label} and {below.label} were matched in part: {matching.refused}")
    count = len(above.requests)
    absent = np.full(count, ABSENT)
    return Boundary(
        upper,
        lower,
        matching,
        absent,
        absent.copy(),
        _may_go_to(above, below, recording),
        offset.offset_ns,
        offset.uncertainty_ns,
        offset.refused,
        several,
    )


def _one_machine(above: TracedLayer, below: TracedLayer, recording: LayerRecording) -> bool:
    """True for traces beside a description that says that all have the machine's monotonic clock."""
    return above.folder == below.folder and above.folder in recording.one_clock


def _may_go_to(above: TracedLayer, below: TracedLayer, recording: LayerRecording) -> NDArray[np.bool_]:
    """Mask of the upper requests that are not known to lie on another device."""
    may = np.ones(len(above.requests), np.bool_)
    if below.device and not above.device:
        named, _ = named_maps(above.requests, recording)
        elsewhere = [s for s, layer in named.items() if layer.device and layer.device != below.device]
        if elsewhere:
            may = ~np.isin(above.requests.space, elsewhere)
    return may


def nearest_by_thread(layers: list[TracedLayer], boundary: Boundary) -> Boundary:
    """Of requests known by their threads alone: the boundary to the layer above that explains most of
    them.
    """
    if boundary.matching.by != "thread" or boundary.refused:
        return boundary
    best, upper = boundary.matching, boundary.upper
    for at in reversed(range(boundary.upper)):
        if layers[at].clock != layers[boundary.lower].clock:
            continue
        other = match_by_thread(layers[at].requests, layers[boundary.lower].requests)
        if other.explained().sum() > _BETTER * best.explained().sum():
            best, upper = other, at
    if upper == boundary.upper:
        return boundary
    absent = np.full(len(layers[upper].requests), ABSENT)
    return Boundary(upper, boundary.lower, best, absent, absent.copy(), np.ones(len(absent), np.bool_))


def _offset(
    above: TracedLayer, below: TracedLayer, recording: LayerRecording, slack: int
) -> clocks.LayerOffset:
    """The offset of the lower layer's clock; of a device's by where the files of the layer above are on
    it.
    """
    if above.clock == below.clock:
        return clocks.LayerOffset()
    known = clocks.LayerOffset(compared=False)
    if not below.device or below.device == above.device:
        return clocks.estimate(above.requests, below.requests, slack)
    for pieces, _, _ in placements(above.requests, above, below.device, recording):
        placed = _spaceless(above.requests.where(pieces.owner))
        placed.start, placed.size = pieces.start, pieces.end - pieces.start
        offset = clocks.estimate(placed, _spaceless(below.requests), slack)
        if offset.says_more_than_nothing:
            return offset
        known = offset if offset.compared else known
    return known


def _slack(above: TracedLayer, below: TracedLayer) -> int:
    if above.clock == below.clock and not above.durations:
        return 0
    return max(layer.resolution_ns for layer in (above, below)) - 1


def _nothing(upper: RequestColumns, lower: RequestColumns) -> Matching:
    empty = np.zeros(0, np.int64)
    return Matching(np.zeros(len(upper), np.int8), empty, empty, empty.astype(np.int8), "none", len(lower))


def _match(
    above: TracedLayer, below: TracedLayer, recording: LayerRecording, slack: int
) -> tuple[Matching, int]:
    """The matching by the best means there is, and the number of requests over several extents."""
    upper = _widened(above.requests, slack)
    lower = below.requests
    if is_queue_of(above, below):
        return match_by_address(upper, lower), 0
    if below.device and below.device != above.device:
        return match_through_map(upper, lower, above, below.device, recording)
    placed = (upper.start >= 0).mean() if len(upper) else 0.0
    if placed > _GOOD_SHARE and (lower.start >= 0).mean() > _GOOD_SHARE:
        named = (upper.space >= 0).any() and (lower.space >= 0).any()
        if not named:
            upper, lower = _spaceless(upper), _spaceless(lower)
        return match_by_address(upper, lower), 0
    return match_by_thread(upper, lower), 0


def _widened(columns: RequestColumns, slack: int) -> RequestColumns:
    """Requests that begin and end `slack` earlier and later, for layers stamped with coarser clocks."""
    if not slack:
        return columns
    end = columns.end
    return replace(
        columns, admit=columns.begin_ns - slack, callback=np.where(end == ABSENT, ABSENT, end + slack)
    )


def _spaceless(columns: RequestColumns) -> RequestColumns:
    return replace(columns, space=np.full(len(columns), -1, np.int32))


def is_queue_of(above: TracedLayer, below: TracedLayer) -> bool:
    """Whether the upper layer is the block queue of the device below."""
    return above.name == "block" and below.name == "device" and above.device == below.device


def _never_absent(times: Ints) -> Ints:
    return np.where(times == ABSENT, FAR, times)


def _by_upper(reduce: np.ufunc, upper: Ints, values: Ints, count: int) -> Ints:
    """Least or greatest of the values of each upper request; `ABSENT` for those without any."""
    times = np.full(count, ABSENT, np.int64)
    if len(upper):
        order = np.argsort(upper, kind="stable")
        ordered = upper[order]
        first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        times[ordered[first]] = reduce.reduceat(values[order], first)
    return times


def set_times_below(layers: list[TracedLayer], boundary: Boundary) -> None:
    """Sets when each upper request first had, and last had, a lower one within its own time."""
    upper, lower = layers[boundary.upper].requests, layers[boundary.lower].requests
    matching = boundary.matching
    waited = (matching.pair_kind == MatchKind.NESTED) | (matching.pair_kind == MatchKind.EARLIER)
    upper_at, by = matching.upper[waited], matching.lower[waited]
    first = _by_upper(np.minimum, upper_at, lower.begin_ns[by], len(upper))
    last = _by_upper(np.maximum, upper_at, _never_absent(lower.end)[by], len(upper))
    begin, end = upper.begin_ns, upper.end
    known = (first != ABSENT) & (last != ABSENT) & (last != FAR) & (end != ABSENT)
    known &= np.isin(matching.kind, (MatchKind.NESTED, MatchKind.EARLIER))
    issue = np.minimum(np.maximum(first, begin), end)
    boundary.issue = np.where(known, issue, ABSENT)
    boundary.complt = np.where(known, np.maximum(issue, np.minimum(last, end)), ABSENT)


def finish_bios(layers: list[TracedLayer]) -> None:
    """Sets the later events of block layers: a bio ends when the last device request with its sectors
    does.
    """
    for above, below in pairwise(layers):
        if not is_queue_of(above, below) or (above.requests.callback != ABSENT).any():
            continue
        matching = match_by_address(above.requests, below.requests)
        nested = matching.pair_kind == MatchKind.NESTED
        upper, lower = matching.upper[nested], matching.lower[nested]
        last = _by_upper(np.maximum, upper, _never_absent(below.requests.end)[lower], len(above.requests))
        above.requests.issue = _by_upper(
            np.minimum, upper, below.requests.begin_ns[lower], len(above.requests)
        )
        above.requests.complt = np.where(last == FAR, ABSENT, last)
        above.requests.callback = above.requests.complt.copy()
        above.stamped = True
