"""Devices of a recording: which lies on which, by the recording's description or by their requests."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from laggard_aggregator.layers.columns import ABSENT, STACK_STEP, LayerRecording, TracedLayer
from laggard_aggregator.layers.matching import MatchKind
from laggard_aggregator.layers.placement import match_through_map

NESTED_SHARE = 0.5
"""Without a description a device lies on another one if this share of its requests has one nested there."""
SIZE_NESTED_SHARE = 0.9
"""The same where no extent map tells the addresses, only sizes and times."""
MAX_DEVICES = 64


@dataclass(slots=True)
class DeviceTree:
    """Devices, upper ones first. `on`: the devices directly above each."""

    order: list[str] = field(default_factory=list)
    on: dict[str, list[str]] = field(default_factory=dict)


def arrange(layers: list[TracedLayer], recording: LayerRecording, remarks: list[str]) -> DeviceTree:
    """The devices in order, and the ranks of their layers; unrelated devices stand beside each other."""
    devices = list(dict.fromkeys(layer.device for layer in layers if layer.device))
    residence = {device: _residence(layers, device) for device in devices}
    devices.sort(key=lambda device: -residence[device])
    tree = DeviceTree(on={device: [] for device in devices})
    if recording.lies_on is not None:
        for device in devices:
            below = _next_recorded(device, recording.lies_on, tree.on)
            if below:
                tree.on[below].append(device)
    elif len(devices) > 1:
        _guess(tree, devices, layers, recording, remarks)
    while len(tree.order) < len(devices):
        ready = [d for d in devices if d not in tree.order and all(u in tree.order for u in tree.on[d])]
        tree.order.append(ready[0] if ready else next(d for d in devices if d not in tree.order))
    for layer in layers:
        if layer.device:
            layer.rank += STACK_STEP * tree.order.index(layer.device)
    return tree


def _residence(layers: list[TracedLayer], device: str) -> float:
    """Median ns of a device's requests: those of an upper one last at least as long as those below it."""
    mine = {layer.name: layer.requests for layer in layers if layer.device == device}
    requests = mine.get("device", mine.get("block"))
    if requests is None or not (requests.end != ABSENT).any():
        return 0.0
    return float(np.median((requests.end - requests.begin_ns)[requests.end != ABSENT]))


def _next_recorded(device: str, lies_on: dict[str, str], known: dict[str, list[str]]) -> str:
    """The next device down that the recording has; devices between may have no events."""
    visited = {device}
    below = lies_on.get(device, "")
    while below and below not in known and below not in visited:
        visited.add(below)
        below = lies_on.get(below, "")
    return below if below in known and below not in visited else ""


def _guess(
    tree: DeviceTree,
    devices: list[str],
    layers: list[TracedLayer],
    recording: LayerRecording,
    remarks: list[str],
) -> None:
    """Stacks devices whose requests have requests nested in them on the other device."""
    requests = {layer.device: layer for layer in layers if layer.name == "device"}
    bios = {layer.device: layer for layer in layers if layer.name == "block"}
    lowest, highest = bios | requests, requests | bios
    for above, below in pairwise(devices):
        matching, _ = match_through_map(
            lowest[above].requests, highest[below].requests, lowest[above], below, recording
        )
        share = matching.share(MatchKind.NESTED)
        if share >= (SIZE_NESTED_SHARE if matching.by == "size" else NESTED_SHARE):
            tree.on[below].append(above)
            remarks.append(
                f"device {above} was taken to lie on device {below}: its requests are nested there"
            )
        else:
            remarks.append(
                f"devices {above} and {below} were taken for independent ones: no description tells "
                "where they lie"
            )
