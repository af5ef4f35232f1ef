"""Reads the files of a recording; the content of a file decides its format, not the name."""

from collections.abc import Callable, Sequence
from pathlib import Path

from laggard_aggregator.layers.columns import LayerRecording
from laggard_aggregator.layers.readers import (
    blkparse,
    dftracer,
    dxt,
    extents,
    kernel_trace,
    neutral,
    printed_events,
    stamped_csv,
    strace,
)
from laggard_aggregator.layers.readers.text_lines import head
from laggard_common.errors import InputError

Reader = Callable[[Path, LayerRecording], None]
MAX_FILES = 4096

_FORMATS: tuple[tuple[Callable[[bytes], bool], Reader], ...] = (
    (extents.is_extent_map, extents.read_extents),
    (extents.is_description, extents.read_description),
    (neutral.matches, neutral.read),
    (stamped_csv.matches, stamped_csv.read),
    (dftracer.matches, dftracer.read),
    (dxt.matches, dxt.read),
    (printed_events.matches, printed_events.read),
    (blkparse.matches, blkparse.read),
    (strace.matches, strace.read),
    (kernel_trace.matches, kernel_trace.read),
)


def open_recording(paths: Sequence[Path], order: tuple[str, ...] = ()) -> LayerRecording:
    """The recording in the files and folders. Raises InputError for a file of no known format.

    `order`: names of layers, top first, where the names alone do not tell it.
    """
    recording = LayerRecording()
    for path, is_named in _files(paths):
        first = head(path)
        reader = next((read for matches, read in _FORMATS if matches(first)), None)
        if reader is None:
            if is_named:
                raise InputError(str(path), "is of no known trace format")
            recording.remarks.append(f"{path.name}: of no known trace format, left out")
            continue
        reader(path, recording)
    _rank(recording, order)
    if not any(len(layer.requests) for layer in recording.layers):
        raise InputError(str(paths[0]), "has no requests")
    if recording.bounds_ns is None:
        ends = [
            (layer.requests.begin_ns, layer.requests.end) for layer in recording.layers if len(layer.requests)
        ]
        first_ns = min(int(begin.min()) for begin, _ in ends)
        recording.bounds_ns = first_ns, max(max(int(begin.max()), int(end.max())) for begin, end in ends)
    return recording


def _rank(recording: LayerRecording, order: tuple[str, ...]) -> None:
    if not order:
        return
    for layer in recording.layers:
        layer.rank = order.index(layer.name) if layer.name in order else len(order) + layer.rank


def _files(paths: Sequence[Path]) -> list[tuple[Path, bool]]:
    """The files, and whether the user named each; of a folder perf's text in place of tracefs' of the
    same run.
    """
    found: list[tuple[Path, bool]] = []
    for path in paths:
        if not path.is_dir():
            found.append((path, True))
            continue
        with InputError.from_os_errors(str(path)):
            inside = sorted(
                each for each in path.iterdir() if each.is_file() and not each.name.startswith(".")
            )
        if not inside:
            raise InputError(str(path), "the folder has no files")
        if any(each.name.startswith("perf.") for each in inside):
            inside = [each for each in inside if not each.name.startswith("tracefs.")]
        found += [(each, False) for each in inside]
    if len(found) > MAX_FILES:
        raise InputError(str(paths[0]), f"more than {MAX_FILES} files")
    return found
