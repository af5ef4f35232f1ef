"""Extent maps of files as `filefrag -v` prints them, and the description of a recording (`meta.json`)."""

import json
import re
from pathlib import Path

import numpy as np

from laggard_aggregator.layers.columns import ExtentMap, LayerRecording
from laggard_aggregator.layers.readers.text_lines import head
from laggard_common.errors import InputError

_LARGEST_BYTES = 64 << 20
_SIZE = re.compile(r"File size of (.*) is ([0-9]{1,19}) \(([0-9]{1,19}) blocks? of ([0-9]{1,9}) bytes\)")
_EXTENT = re.compile(
    r" *[0-9]{1,9}: +([0-9]{1,18})\.\. *([0-9]{1,18}): +([0-9]{1,18})\.\. *([0-9]{1,18}): +([0-9]{1,18}):(.*)"
)
_NOT_MAPPED = ("unwritten", "inline", "delalloc", "unknown")
_DEVICE = re.compile(r"[0-9]{1,7},[0-9]{1,7}")


def is_extent_map(first: bytes) -> bool:
    """True for the output of `filefrag -v`."""
    return first.startswith((b"Filesystem type is:", b"File size of "))


def is_description(first: bytes) -> bool:
    """True for a recording's `meta.json`."""
    return first.lstrip().startswith(b"{") and (b'"descriptors"' in first or b'"devices"' in first)


def read_extents(path: Path, recording: LayerRecording) -> None:
    """Adds the file's extent maps. Raises InputError."""
    name, size, block = "", 0, 4096
    rows: list[tuple[int, int, int]] = []
    for line in _text(path).splitlines():
        if found := _SIZE.fullmatch(line):
            _add(recording, name, size, rows)
            name, size, block, rows = Path(found[1]).name, int(found[2]), int(found[4]), []
        elif found := _EXTENT.fullmatch(line):
            if any(flag in found[6] for flag in _NOT_MAPPED):
                continue
            rows.append((int(found[1]) * block, int(found[3]) * block, int(found[5]) * block))
    _add(recording, name, size, rows)


def _add(recording: LayerRecording, name: str, size: int, rows: list[tuple[int, int, int]]) -> None:
    if not rows:
        return
    rows.sort()
    logical, physical, length = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    recording.extents.append(ExtentMap(name, logical, physical, length, size))


def read_description(path: Path, recording: LayerRecording) -> None:
    """Adds descriptors and devices of `meta.json`. Raises InputError."""
    try:
        known = json.loads(_text(path))
    except (ValueError, RecursionError) as exc:
        raise InputError(str(path), f"is no JSON: {exc}") from None
    if not isinstance(known, dict):
        raise InputError(str(path), "expected an object")
    descriptors = known.get("descriptors")
    for pair in descriptors if isinstance(descriptors, list) else []:
        if isinstance(pair, list) and len(pair) >= 2 and all(type(v) is int for v in pair[:2]):
            name = pair[2] if len(pair) > 2 and isinstance(pair[2], str) else ""
            recording.descriptors[pair[0], pair[1]] = name[:4096]
    devices = known.get("devices")
    for device in devices if isinstance(devices, list) else []:
        if isinstance(device, str) and _DEVICE.fullmatch(device):
            recording.devices.append(device)
    stack = known.get("stack")
    for device in stack if isinstance(stack, list) else []:
        if isinstance(device, str) and _DEVICE.fullmatch(device):
            recording.stack.append(device)
    node = known.get("node")
    recording.node = node[:128] if isinstance(node, str) else ""
    lost = known.get("lost_events")
    if type(lost) is int and lost > 0:
        recording.lost_events += lost
        recording.remarks.append(f"the recorder lost {lost} events")


def _text(path: Path) -> str:
    raw = head(path, _LARGEST_BYTES + 1)
    if len(raw) > _LARGEST_BYTES:
        raise InputError(str(path), f"has more than {_LARGEST_BYTES >> 20} MiB")
    return raw.decode(errors="replace")
