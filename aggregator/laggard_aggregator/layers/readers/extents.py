"""Extent maps of files as `filefrag -v` prints them, and the description of a recording (`meta.json`)."""

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from laggard_aggregator.layers.columns import DescriptorPath, ExtentMap, LayerRecording
from laggard_aggregator.layers.readers.text_lines import content
from laggard_common.errors import InputError

_LARGEST_BYTES = 64 << 20
_SIZE = re.compile(r"File size of (.*) is ([0-9]{1,19}) \(([0-9]{1,19}) blocks? of ([0-9]{1,9}) bytes\)")
_EXTENT = re.compile(
    r" *[0-9]{1,9}: +([0-9]{1,18})\.\. *([0-9]{1,18}): +([0-9]{1,18})\.\. *([0-9]{1,18}): +([0-9]{1,18}):(.*)"
)
_NOT_MAPPED = ("unwritten", "inline", "delalloc", "unknown")
_DEVICE = re.compile(r"[0-9]{1,7},[0-9]{1,7}")
_FAR = 1 << 61
_MOST_LOOKS = 16
_MOST_REMARKS = 16
MAX_MAPS = 4096


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
        if match := _SIZE.fullmatch(line):
            _add(recording, name, size, rows)
            name, size, block, rows = match[1], int(match[2]), int(match[4]), []
        elif match := _EXTENT.fullmatch(line):
            if any(flag in match[6] for flag in _NOT_MAPPED):
                continue
            row = (int(match[1]) * block, int(match[3]) * block, int(match[5]) * block)
            if max(row) < _FAR:
                rows.append(row)
    _add(recording, name, size, rows)


def _add(recording: LayerRecording, name: str, size: int, rows: list[tuple[int, int, int]]) -> None:
    if not rows:
        return
    if len(recording.extents) >= MAX_MAPS:
        raise InputError(name, f"more than {MAX_MAPS} extent maps")
    rows.sort()
    logical, physical, length = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    recording.extents.append(ExtentMap(name, logical, physical, length, size))


def read_description(path: Path, recording: LayerRecording) -> None:
    """Adds descriptors, devices and losses of `meta.json`. Raises InputError."""
    try:
        known = json.loads(_text(path))
    except (ValueError, RecursionError) as exc:
        raise InputError(str(path), f"is no JSON: {str(exc)[:100]}") from None
    if not isinstance(known, dict):
        raise InputError(str(path), "expected an object")
    for row in _listed(known.get("descriptors")):
        _add_descriptor(row, recording)
    _add_devices(known, recording)
    if known.get("clock") == "CLOCK_MONOTONIC":
        recording.one_clock.add(str(path.resolve().parent))
    node = known.get("node")
    recording.node = node[:128] if isinstance(node, str) else ""
    lost = known.get("lost_events")
    if type(lost) is int and 0 < lost < _FAR:
        recording.lost_events += lost
        recording.remarks.append(f"the recorder lost {lost} events")
    if known.get("output_full") is True:
        recording.remarks.append("the recording ended early: the trace reached its largest size")
    for remark in _listed(known.get("remarks"))[:_MOST_REMARKS]:
        if isinstance(remark, str):
            recording.remarks.append(remark[:1024])


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapped(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _add_descriptor(row: Any, recording: LayerRecording) -> None:
    """Adds one row: process, descriptor, path, and the times at which it was seen, which may be missing."""
    if not isinstance(row, list) or len(row) < 2 or not all(_is_number(v) for v in row[:2]):
        return
    path = row[2] if len(row) > 2 and isinstance(row[2], str) else ""
    first_ns, last_ns, position = (v if _is_number(v) else None for v in (*row[3:6], None, None, None)[:3])
    looks = _listed(row[6] if len(row) > 6 else None)[:_MOST_LOOKS]
    descriptor = DescriptorPath(
        path[:4096], first_ns, last_ns, position, tuple((at, where) for at, where in filter(_is_look, looks))
    )
    recording.descriptors.setdefault((row[0], row[1]), []).append(descriptor)


def _is_look(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(_is_number(number) for number in value)


def _is_number(value: Any) -> bool:
    return type(value) is int and abs(value) < _FAR


def _add_devices(known: dict[str, Any], recording: LayerRecording) -> None:
    """Adds where devices and files lie. `stack`, of older recordings: devices, each on the next one."""
    stack = [device for device in _listed(known.get("stack")) if _is_device(device)]
    if stack:
        recording.lies_on = {**(recording.lies_on or {}), **dict(pairwise(stack))}
    if isinstance(known.get("lies_on"), dict):
        below = {k: v for k, v in _mapped(known["lies_on"]).items() if _is_device(k) and _is_device(v)}
        recording.lies_on = {**(recording.lies_on or {}), **below}
    for path, device in _mapped(known.get("file_devices")).items():
        if _is_device(device):
            recording.devices_of[path[:4096]] = device
    for path, place in _mapped(known.get("inodes")).items():
        if len(_listed(place)) == 2 and _is_number(place[1]):
            recording.inodes[path[:4096]] = place[1]
    for device, file in _mapped(known.get("backing_files")).items():
        if _is_device(device) and isinstance(file, str):
            recording.backing[device] = file[:4096]
    for part, place in _mapped(known.get("partitions")).items():
        if _is_device(part) and len(_listed(place)) == 2 and _is_device(place[0]) and _is_number(place[1]):
            recording.partitions[part] = (place[0], max(0, place[1]))


def _is_device(value: Any) -> bool:
    return isinstance(value, str) and _DEVICE.fullmatch(value) is not None


def place_extents(recording: LayerRecording) -> None:
    """Gives each map the device of its file. A partition becomes its disk, above and below a device, too."""

    def on_disk(device: str) -> tuple[str, int]:
        return recording.partitions.get(device, (device, 0))

    for at, extent in enumerate(recording.extents):
        disk, first = on_disk(recording.devices_of.get(extent.file, extent.device))
        recording.extents[at] = replace(extent, device=disk, physical=extent.physical + first)
    if recording.lies_on is not None:
        pairs = [(on_disk(upper)[0], on_disk(lower)[0]) for upper, lower in recording.lies_on.items()]
        recording.lies_on = {upper: lower for upper, lower in pairs if upper != lower}


def _text(path: Path) -> str:
    raw = content(path, _LARGEST_BYTES + 1)
    if len(raw) > _LARGEST_BYTES:
        raise InputError(str(path), f"has more than {_LARGEST_BYTES >> 20} MiB")
    return raw.decode(errors="replace")
