"""A recording as a stack: layers in order, each matched with the one below, on one clock."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.layers import clocks, devices
from laggard_aggregator.layers.characteristics import Characteristics, of_layer
from laggard_aggregator.layers.columns import (
    ABSENT,
    Ints,
    LayerRecording,
    RequestColumns,
    TracedLayer,
)
from laggard_aggregator.layers.identity import data_calls
from laggard_aggregator.layers.interval_index import FAR
from laggard_aggregator.layers.matching import (
    Matching,
    MatchKind,
    match_by_address,
    match_by_thread,
)
from laggard_aggregator.layers.placement import match_through_map, named_maps, placements
from laggard_common.errors import InputError

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
        """The boundary above a layer; of several the one that explains most."""
        found = [each for each in self.boundaries if each.lower == layer]
        return max(found, key=lambda each: int(each.matching.explained().sum()), default=None)

    def unmatched_ratio(self, layer: int) -> float | None:
        """Share of a layer's requests without one below; None for the lowest."""
        missing = [
            (each.matching.kind == MatchKind.NONE) | (each.matching.kind == MatchKind.PARTIAL)
            for each in self.boundaries
            if each.upper == layer
        ]
        if not missing:
            return None
        return float(np.logical_and.reduce(missing).mean()) if len(missing[0]) else 0.0

    def unexplained_ratio(self, layer: int) -> float | None:
        """Share of a layer's requests that none above explains; None for the top layer."""
        explained = [each.matching.explained() for each in self.boundaries if each.lower == layer]
        if not explained:
            return None
        return 1.0 - float(np.logical_or.reduce(explained).mean()) if len(explained[0]) else 0.0

    def path(self, layer: int) -> list[int]:
        """The layer and those above it, up to the top."""
        found = [layer]
        while (boundary := self.above(found[-1])) is not None and boundary.upper not in found:
            found.append(boundary.upper)
        return found

    def bottoms(self) -> list[int]:
        """The lowest layers, one for each device beside others; of several those that the top reaches."""
        lowest = [at for at in range(len(self.layers)) if self.below(at) is None]
        if len(lowest) == 1:
            return lowest
        reached = [
            at for at in lowest if all(self._leads(upper, low) for low, upper in pairwise(self.path(at)))
        ]
        return reached or lowest[-1:]

    def _leads(self, upper: int, lower: int) -> bool:
        return any(
            len(each.matching.upper) > 0
            for each in self.boundaries
            if (each.upper, each.lower) == (upper, lower)
        )


def build(recording: LayerRecording) -> Stack:
    """Orders, matches and measures the layers of a recording."""
    remarks = list(recording.remarks)
    layers = _one_a_place(recording.layers, remarks)
    _few_devices(layers, recording)
    tree = devices.arrange(layers, recording, remarks)
    layers.sort(key=lambda layer: layer.rank)
    data_calls(layers, recording, remarks)
    layers = [layer for layer in layers if len(layer.requests)]
    positions = [int((layer.requests.start < 0).sum()) for layer in layers if layer.name == "syscall"]
    remarks += [f"{count} reads and writes have no known file position" for count in positions if count]
    if not layers:
        raise InputError(_folder(recording), "has no requests on data files")
    _finish_bios(layers)
    for text in (
        r for layer in layers if not layer.device for r in named_maps(layer.requests, recording)[1].remarks()
    ):
        if text not in remarks:
            remarks.append(text)
    boundaries = [
        _boundary(layers, above, below, recording, remarks)
        for below in range(1, len(layers))
        for above in _uppers(layers, below, tree, recording)
    ]
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
    if recording.bounds_ns is None:  # after the clocks were put right
        recording.bounds_ns = min(int(layer.requests.begin_ns.min()) for layer in layers), last
    return stack


def _folder(recording: LayerRecording) -> str:
    return next((layer.folder for layer in recording.layers if layer.folder), "the recording")


def _few_devices(layers: list[TracedLayer], recording: LayerRecording) -> None:
    """Raises InputError for more devices than a picture can show or a run can use."""
    count = len({layer.device for layer in layers if layer.device})
    if count > devices.MAX_DEVICES:
        raise InputError(_folder(recording), f"has {count} devices, expected at most {devices.MAX_DEVICES}")


def _uppers(
    layers: list[TracedLayer], below: int, tree: devices.DeviceTree, recording: LayerRecording
) -> list[int]:
    """The layers right above one: of a device the devices on it, and the calls on its own files."""
    layer = layers[below]
    previous = layers[below - 1]
    if not layer.device or _is_queue_of(previous, layer):
        return [below - 1]
    if previous.device == layer.device:
        return [below - 1]
    calls = max((at for at, each in enumerate(layers) if not each.device), default=None)
    found = [
        max(at for at, each in enumerate(layers) if each.device == upper) for upper in tree.on[layer.device]
    ]
    direct = not found or any(
        each.device == layer.device and each.file not in recording.backing.values()
        for each in recording.extents
    )
    if calls is not None and direct:
        found.insert(0, calls)
    return found


def _own(layers: list[TracedLayer], boundaries: list[Boundary]) -> list[NDArray[np.bool_]]:
    """Masks of the requests that requests of the top layer explain, from layer to layer."""
    own = [np.ones(len(layer.requests), np.bool_) for layer in layers]
    for lower in range(1, len(layers)):
        mask = np.zeros(len(layers[lower].requests), np.bool_)
        for boundary in (each for each in boundaries if each.lower == lower):
            matching = boundary.matching
            mask[matching.lower[own[boundary.upper][matching.upper]]] = True
        if mask.any():
            own[lower] = mask
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
            replace(
                boundary,
                matching=matching,
                issue=boundary.issue[above],
                complt=boundary.complt[above],
                chosen=boundary.chosen[above],
            )
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


def _boundary(
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
        elsewhere = [s for s, each in named.items() if each.device and each.device != below.device]
        if elsewhere:
            may = ~np.isin(above.requests.space, elsewhere)
    return may


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
    if _is_queue_of(above, below):
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
        above.requests.complt = np.where(last == FAR, ABSENT, last)
        above.requests.callback = above.requests.complt.copy()
        above.stamped = True


def _is_queue_of(above: TracedLayer, below: TracedLayer) -> bool:
    return above.name == "block" and below.name == "device" and above.device == below.device


def _never_absent(times: Ints) -> Ints:
    return np.where(times == ABSENT, FAR, times)


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
    known = (first != ABSENT) & (last != ABSENT) & (last != FAR) & (end != ABSENT)
    known &= np.isin(matching.kind, (MatchKind.NESTED, MatchKind.EARLIER))
    issue = np.minimum(np.maximum(first, begin), end)
    boundary.issue = np.where(known, issue, ABSENT)
    boundary.complt = np.where(known, np.maximum(issue, np.minimum(last, end)), ABSENT)


def _breakdown(stack: Stack, at: int) -> Breakdown:
    """Residence of a layer's requests by phase: its own stamps where it has them, else from the layer below.

    Of a layer that answers before its requests complete there is no time from COMPLT to CALLBACK.
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
        _mean(end - complt, has_complt & (columns.callback != ABSENT) & (complt <= end)),
    )


def _mean(values: Ints, chosen: NDArray[np.bool_]) -> float | None:
    return float(values[chosen].mean()) / 1000 if chosen.any() else None
