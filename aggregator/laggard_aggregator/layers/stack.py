"""A recording as a stack: layers in order, each matched with the one below, on one clock."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.layers import clocks
from laggard_aggregator.layers.characteristics import Characteristics, of_layer
from laggard_aggregator.layers.columns import (
    ABSENT,
    STACK_STEP,
    ExtentMap,
    Ints,
    LayerRecording,
    RequestColumns,
    TracedLayer,
)
from laggard_aggregator.layers.identity import data_calls
from laggard_aggregator.layers.matching import (
    Matching,
    MatchKind,
    Pieces,
    match_by_address,
    match_by_size,
    match_by_thread,
)

_GOOD_SHARE = 0.5
_BETTER = 1.5


@dataclass(slots=True)
class Boundary:
    """Two adjacent layers. Times of each upper request below it, ns, `ABSENT` where it has no lower one.

    `offset_ns` was added to the lower layer's times. `refused`: reason for no matching, or empty. `several`:
    upper requests over two or more extents.
    """

    upper: int
    lower: int
    matching: Matching
    issue: Ints
    complt: Ints
    offset_ns: int = 0
    uncertainty_ns: int = 0
    refused: str = ""
    several: int = 0

    @property
    def linked(self) -> NDArray[np.bool_]:
        """Upper requests that waited for a lower one: nested, or in flight when they were admitted."""
        linked: NDArray[np.bool_] = (self.issue != ABSENT) & (self.complt != ABSENT)
        return linked

    def unmatched_ratio(self) -> float:
        """Share of the upper requests without a lower one."""
        missing = (self.matching.kind == MatchKind.NONE) | (self.matching.kind == MatchKind.PARTIAL)
        return float(missing.mean()) if len(missing) else 0.0

    def unexplained_ratio(self) -> float:
        """Share of the lower requests that no upper one explains."""
        explained = self.matching.explained()
        return 1.0 - float(explained.mean()) if len(explained) else 0.0


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Mean microseconds of a request from event to event; None where the trace does not tell."""

    admit_issue: float | None
    issue_complt: float | None
    complt_callback: float | None


@dataclass(slots=True)
class Stack:
    """Layers from the application down, their characteristics, and the boundaries between them."""

    layers: list[TracedLayer]
    characteristics: list[Characteristics]
    boundaries: list[Boundary]
    breakdowns: list[Breakdown]
    remarks: list[str]
    recording: LayerRecording
    own: list[NDArray[np.bool_]]
    """Of each layer the requests that come from the top layer; a device serves others, too."""

    def below(self, layer: int) -> Boundary | None:
        """The boundary below a layer."""
        found = [each for each in self.boundaries if each.upper == layer]
        return max(found, key=lambda each: int(each.linked.sum()), default=None)

    def above(self, layer: int) -> Boundary | None:
        """The boundary above a layer."""
        return next((each for each in self.boundaries if each.lower == layer), None)


def build(recording: LayerRecording) -> Stack:
    """Orders, matches and measures the layers of a recording."""
    remarks = list(recording.remarks)
    layers = _one_a_place(recording.layers, remarks)
    _order_devices(layers, recording)
    layers.sort(key=lambda layer: layer.rank)
    data_calls(layers, recording)
    layers = [layer for layer in layers if len(layer.requests)]
    _finish_bios(layers)
    boundaries = [_boundary(layers, at, recording, remarks) for at in range(len(layers) - 1)]
    boundaries = [_nearest_by_thread(layers, each) for each in boundaries]
    for boundary in boundaries:
        _times_below(layers, boundary)
    last = max((_latest(layer.requests) for layer in layers), default=0)
    stack = Stack(
        layers=layers,
        characteristics=[of_layer(layer, last) for layer in layers],
        boundaries=boundaries,
        breakdowns=[],
        remarks=remarks,
        recording=recording,
        own=_own(layers, boundaries),
    )
    stack.breakdowns = [_breakdown(stack, at) for at in range(len(layers))]
    return stack


def _own(layers: list[TracedLayer], boundaries: list[Boundary]) -> list[NDArray[np.bool_]]:
    """Masks of the requests that requests of the top layer explain, from layer to layer."""
    own = [np.ones(len(layer.requests), np.bool_) for layer in layers]
    for boundary in boundaries:
        matching = boundary.matching
        from_top = own[boundary.upper][matching.upper]
        if from_top.any():
            mask = np.zeros(len(layers[boundary.lower].requests), np.bool_)
            mask[matching.lower[from_top]] = True
            own[boundary.lower] = mask
    return own


def of_the_top(stack: Stack) -> Stack:
    """The same stack without the requests of others."""
    if all(mask.all() for mask in stack.own):
        return stack
    layers = [
        replace(layer, requests=layer.requests.where(mask))
        for layer, mask in zip(stack.layers, stack.own, strict=True)
    ]
    places = [np.cumsum(mask) - 1 for mask in stack.own]
    boundaries = []
    for boundary in stack.boundaries:
        above, below = stack.own[boundary.upper], stack.own[boundary.lower]
        pairs = boundary.matching
        kept = above[pairs.upper] & below[pairs.lower]
        matching = replace(
            pairs,
            kind=pairs.kind[above],
            upper=places[boundary.upper][pairs.upper[kept]],
            lower=places[boundary.lower][pairs.lower[kept]],
            pair_kind=pairs.pair_kind[kept],
            lower_count=int(below.sum()),
        )
        boundaries.append(
            replace(boundary, matching=matching, issue=boundary.issue[above], complt=boundary.complt[above])
        )
    last = max((_latest(layer.requests) for layer in layers), default=0)
    return Stack(
        layers=layers,
        characteristics=[of_layer(layer, last) for layer in layers],
        boundaries=boundaries,
        breakdowns=stack.breakdowns,
        remarks=stack.remarks,
        recording=stack.recording,
        own=[np.ones(len(layer.requests), np.bool_) for layer in layers],
    )


def _latest(columns: RequestColumns) -> int:
    begin, end = columns.begin_ns, columns.end
    return max(int(begin.max()), int(end.max()))


def _one_a_place(layers: Sequence[TracedLayer], remarks: list[str]) -> list[TracedLayer]:
    """One layer for each name and device: recordings of one time are alternatives, others are joined."""
    kept: list[TracedLayer] = []
    for layer in layers:
        if not len(layer.requests):
            continue
        same = next((k for k in kept if (k.name, k.device) == (layer.name, layer.device)), None)
        if same is None:
            kept.append(layer)
            continue
        a, b = same.requests.begin_ns, layer.requests.begin_ns
        overlap = min(a.max(), b.max()) - max(a.min(), b.min())
        if same.clock != layer.clock and overlap > 0.5 * (b.max() - b.min()):
            remarks.append(f"{layer.label}: {layer.clock} was left out, as {same.clock} has the same time")
            continue
        same.requests = RequestColumns.joined([same.requests, layer.requests])
        same.stamped = same.stamped and layer.stamped
    return kept


def _order_devices(layers: list[TracedLayer], recording: LayerRecording) -> None:
    """Ranks devices that lie on others: as the recording says, else the one with the longest requests on top.

    A request of the upper device lasts at least as long as the requests below it that it waits for.
    """
    devices = {layer.device for layer in layers if layer.device}
    if len(devices) < 2:
        return
    residence: dict[str, float] = {}
    for device in devices:
        lasting = [
            float(np.median((layer.requests.end - layer.requests.begin_ns)[layer.requests.end != ABSENT]))
            for layer in layers
            if layer.device == device and layer.name == "device" and (layer.requests.end != ABSENT).any()
        ]
        residence[device] = max(lasting, default=0.0)
    listed = {device: place for place, device in enumerate(recording.stack)}
    order = sorted(devices, key=lambda d: (listed.get(d, len(listed)), -residence[d]))
    for layer in layers:
        if layer.device:
            layer.rank += STACK_STEP * order.index(layer.device)


def _boundary(layers: list[TracedLayer], at: int, recording: LayerRecording, remarks: list[str]) -> Boundary:
    """Matches a layer with the next one down."""
    above, below = layers[at], layers[at + 1]
    slack = _slack(above, below)
    offset = _offset(above, below, recording, slack)
    if offset.offset_ns:
        for layer in layers[at + 1 :]:
            if layer.clock == below.clock:
                layer.requests = layer.requests.shifted(offset.offset_ns)
        seconds, way = offset.offset_ns / 1e9, offset.uncertainty_ns / 1e6
        remarks.append(
            f"clock of {below.label}: {seconds:+.6f} s were added to its times (estimated, to within "
            f"{way:.3f} ms)"
        )
    if offset.remark:
        remarks.append(f"{below.label}: {offset.remark}")
    if offset.refused:
        remarks.append(f"{above.label} and {below.label} were not matched: {offset.refused}")
        matching = _nothing(above.requests, below.requests)
        several = 0
    else:
        matching, several = _match(above, below, recording, slack)
    count = len(above.requests)
    absent = np.full(count, ABSENT)
    return Boundary(
        at,
        at + 1,
        matching,
        absent,
        absent.copy(),
        offset.offset_ns,
        offset.uncertainty_ns,
        offset.refused,
        several,
    )


def _nearest_by_thread(layers: list[TracedLayer], boundary: Boundary) -> Boundary:
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
    return Boundary(upper, boundary.lower, best, absent, absent.copy())


def _offset(
    above: TracedLayer, below: TracedLayer, recording: LayerRecording, slack: int
) -> clocks.LayerOffset:
    """The offset of the lower layer's clock; of a device's by where the files of the layer above are on
    it.
    """
    if above.clock == below.clock:
        return clocks.LayerOffset()
    if not below.device or below.device == above.device:
        return clocks.estimate(above.requests, below.requests, slack)
    for pieces, _, _ in _placements(above.requests, above, recording):
        placed = _spaceless(above.requests.where(pieces.owner))
        placed.start, placed.size = pieces.start, pieces.end - pieces.start
        offset = clocks.estimate(placed, _spaceless(below.requests), slack)
        if offset != clocks.LayerOffset():
            return offset
    return clocks.LayerOffset()


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
    if _is_queue_of(above, below):
        return match_by_address(upper, lower), 0
    if below.device and below.device != above.device:
        return _match_through_map(upper, lower, above, recording)
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


def _match_through_map(
    upper: RequestColumns, lower: RequestColumns, above: TracedLayer, recording: LayerRecording
) -> tuple[Matching, int]:
    """Matches files, or a device, with the device below them by the extents of the files there."""
    finished = replace(
        upper, size=np.where((upper.done >= 0) & (upper.done < upper.size), upper.done, upper.size)
    )
    best: tuple[Matching, int] | None = None
    best_share = 0.0
    for pieces, holes, several in _placements(finished, above, recording):
        matching = match_by_address(finished, lower, pieces, holes)
        found = float(np.isin(matching.kind, (MatchKind.NONE, MatchKind.HOLE), invert=True).mean())
        if best is None or found > best_share:
            best, best_share = (matching, several), found
    if best is not None and best_share > 0.1:
        return best
    if above.device:
        return match_by_size(upper, lower), 0
    return match_by_thread(replace(upper, process=np.full(len(upper), -1, np.int64)), lower), 0


def _placements(
    upper: RequestColumns, above: TracedLayer, recording: LayerRecording
) -> list[tuple[Pieces, Ints, int]]:
    """Ways to place the upper requests on the device below: by the maps of their files, or by any map."""
    if above.device:
        return [_placed(upper, {-1: each}) for each in recording.extents]
    spaces = {int(space) for space in np.unique(upper.space)}
    names = recording.names.names
    by_name = {
        space: each
        for space in spaces
        for each in recording.extents
        if space >= 0 and names[space].rsplit("/", 1)[-1] == each.file
    }
    if by_name:
        return [_placed(upper, by_name)]
    return [_placed(upper, {-1: each}) for each in recording.extents]


def _placed(upper: RequestColumns, maps: dict[int, ExtentMap]) -> tuple[Pieces, Ints, int]:
    """Pieces of the requests on the device, the bytes of each that have none, and requests in several pieces.

    `maps`: by space; -1 is for all requests.
    """
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


def _finish_bios(layers: list[TracedLayer]) -> None:
    """Sets the later events of block layers: a bio ends when the last device request with its sectors
    does.
    """
    for above, below in pairwise(layers):
        if not _is_queue_of(above, below) or (above.requests.callback != ABSENT).any():
            continue
        matching = match_by_address(above.requests, below.requests)
        nested = matching.pair_kind == MatchKind.NESTED
        upper, lower = matching.upper[nested], matching.lower[nested]
        last = _by_upper(np.maximum, upper, _never_absent(below.requests.end)[lower], len(above.requests))
        above.requests.issue = _by_upper(
            np.minimum, upper, below.requests.begin_ns[lower], len(above.requests)
        )
        above.requests.complt = np.where(last == _FAR, ABSENT, last)
        above.requests.callback = above.requests.complt.copy()
        above.stamped = True


def _is_queue_of(above: TracedLayer, below: TracedLayer) -> bool:
    return above.name == "block" and below.name == "device" and above.device == below.device


_FAR = np.iinfo(np.int64).max


def _never_absent(times: Ints) -> Ints:
    return np.where(times == ABSENT, _FAR, times)


def _by_upper(reduce: np.ufunc, upper: Ints, values: Ints, count: int) -> Ints:
    """Least or greatest of the values of each upper request; `ABSENT` for those without any."""
    found = np.full(count, ABSENT, np.int64)
    if len(upper):
        order = np.argsort(upper, kind="stable")
        ordered = upper[order]
        first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        found[ordered[first]] = reduce.reduceat(values[order], first)
    return found


def _times_below(layers: list[TracedLayer], boundary: Boundary) -> None:
    """Sets when each upper request first had, and last had, a lower one within its own time."""
    upper, lower = layers[boundary.upper].requests, layers[boundary.lower].requests
    matching = boundary.matching
    waited = (matching.pair_kind == MatchKind.NESTED) | (matching.pair_kind == MatchKind.EARLIER)
    of, by = matching.upper[waited], matching.lower[waited]
    first = _by_upper(np.minimum, of, lower.begin_ns[by], len(upper))
    last = _by_upper(np.maximum, of, _never_absent(lower.end)[by], len(upper))
    begin, end = upper.begin_ns, upper.end
    known = (first != ABSENT) & (last != ABSENT) & (last != _FAR) & (end != ABSENT)
    known &= np.isin(matching.kind, (MatchKind.NESTED, MatchKind.EARLIER))
    issue = np.minimum(np.maximum(first, begin), end)
    boundary.issue = np.where(known, issue, ABSENT)
    boundary.complt = np.where(known, np.maximum(issue, np.minimum(last, end)), ABSENT)


def _breakdown(stack: Stack, at: int) -> Breakdown:
    """Residence of a layer's requests by phase: its own stamps where it has them, else from the layer
    below.
    """
    columns = stack.layers[at].requests
    begin, end = columns.begin_ns, columns.end
    if stack.layers[at].stamped:
        issue, complt = columns.issue, columns.complt
    else:
        boundary = stack.below(at)
        if boundary is None:
            return Breakdown(None, _mean(end - begin, (end != ABSENT) & (begin != ABSENT)), None)
        nested = boundary.matching.kind == MatchKind.NESTED
        if not (nested & boundary.linked).any():
            return Breakdown(None, None, None)
        issue = np.where(nested, boundary.issue, ABSENT)
        complt = np.where(nested, boundary.complt, ABSENT)
    has_issue, has_complt = issue != ABSENT, complt != ABSENT
    return Breakdown(
        _mean(issue - begin, has_issue & (columns.admit != ABSENT)),
        _mean(complt - issue, has_issue & has_complt),
        _mean(end - complt, has_complt & (columns.callback != ABSENT)),
    )


def _mean(values: Ints, chosen: NDArray[np.bool_]) -> float | None:
    return float(values[chosen].mean()) / 1000 if chosen.any() else None
