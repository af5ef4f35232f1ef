"""A recording as a stack: layers in order, each matched with the one below, on one clock."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.layers import devices
from laggard_aggregator.layers.boundary import (
    Boundary,
    finish_bios,
    is_queue_of,
    matched_boundary,
    nearest_by_thread,
    set_times_below,
)
from laggard_aggregator.layers.characteristics import Characteristics, of_layer
from laggard_aggregator.layers.columns import (
    ABSENT,
    Ints,
    LayerRecording,
    RequestColumns,
    TracedLayer,
)
from laggard_aggregator.layers.identity import data_calls
from laggard_aggregator.layers.matching import (
    MatchKind,
)
from laggard_aggregator.layers.placement import named_maps
from laggard_common.errors import InputError


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
        boundaries = [boundary for boundary in self.boundaries if boundary.upper == layer]
        return max(boundaries, key=lambda boundary: int(boundary.linked.sum()), default=None)

    def above(self, layer: int) -> Boundary | None:
        """The boundary above a layer; of several the one that explains most."""
        boundaries = [boundary for boundary in self.boundaries if boundary.lower == layer]
        return max(boundaries, key=lambda boundary: int(boundary.matching.explained().sum()), default=None)

    def unmatched_ratio(self, layer: int) -> float | None:
        """Share of a layer's requests without one below; None for the lowest."""
        missing = [
            (boundary.matching.kind == MatchKind.NONE) | (boundary.matching.kind == MatchKind.PARTIAL)
            for boundary in self.boundaries
            if boundary.upper == layer
        ]
        if not missing:
            return None
        return float(np.logical_and.reduce(missing).mean()) if len(missing[0]) else 0.0

    def unexplained_ratio(self, layer: int) -> float | None:
        """Share of a layer's requests that none above explains; None for the top layer."""
        explained = [boundary.matching.explained() for boundary in self.boundaries if boundary.lower == layer]
        if not explained:
            return None
        return 1.0 - float(np.logical_or.reduce(explained).mean()) if len(explained[0]) else 0.0

    def path(self, layer: int) -> list[int]:
        """The layer and those above it, up to the top."""
        layers = [layer]
        while (boundary := self.above(layers[-1])) is not None and boundary.upper not in layers:
            layers.append(boundary.upper)
        return layers

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
            len(boundary.matching.upper) > 0
            for boundary in self.boundaries
            if (boundary.upper, boundary.lower) == (upper, lower)
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
    finish_bios(layers)
    for text in (
        r for layer in layers if not layer.device for r in named_maps(layer.requests, recording)[1].remarks()
    ):
        if text not in remarks:
            remarks.append(text)
    boundaries = [
        matched_boundary(layers, above, below, recording, remarks)
        for below in range(1, len(layers))
        for above in _uppers(layers, below, tree, recording)
    ]
    boundaries = [nearest_by_thread(layers, boundary) for boundary in boundaries]
    for boundary in boundaries:
        set_times_below(layers, boundary)
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
    if not layer.device or is_queue_of(previous, layer):
        return [below - 1]
    if previous.device == layer.device:
        return [below - 1]
    calls = max((at for at, layer in enumerate(layers) if not layer.device), default=None)
    uppers = [
        max(at for at, own in enumerate(layers) if own.device == upper) for upper in tree.on[layer.device]
    ]
    direct = not uppers or any(
        extent.device == layer.device and extent.file not in recording.backing.values()
        for extent in recording.extents
    )
    if calls is not None and direct:
        uppers.insert(0, calls)
    return uppers


def _own(layers: list[TracedLayer], boundaries: list[Boundary]) -> list[NDArray[np.bool_]]:
    """Masks of the requests that requests of the top layer explain, from layer to layer."""
    own = [np.ones(len(layer.requests), np.bool_) for layer in layers]
    for lower in range(1, len(layers)):
        mask = np.zeros(len(layers[lower].requests), np.bool_)
        for boundary in (boundary for boundary in boundaries if boundary.lower == lower):
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
