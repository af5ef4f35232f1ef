"""Reads the files of a recording; the content of a file decides its format, not the name."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from laggard_aggregator.files.beginning import beginning
from laggard_aggregator.layers.columns import LayerRecording, TracedLayer
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
from laggard_aggregator.layers.readers.plausible import keep_plausible
from laggard_aggregator.layers.readers.text_lines import head
from laggard_common.errors import InputError

Reader = Callable[[Path, LayerRecording], None]
MAX_FILES = 4096
MAX_REQUESTS = 200_000_000

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
    readers: list[tuple[Path, Reader]] = []
    for path, is_named in _files(paths):
        first = head(path)
        reader = next((read for matches, read in _FORMATS if matches(first)), None)
        if reader is not None:
            readers.append((path, reader))
        elif is_named:
            problem = f"not a trace format that Laggard knows: {beginning(first)}"
            raise InputError(str(path), f"{problem}; laggard layers --help lists the formats")
        else:
            recording.remarks.append(f"{path.name}: of no known trace format, left out")
    # the others ask it for the devices and file positions
    for path, reader in sorted(readers, key=lambda source: source[1] is not extents.read_description):
        before = len(recording.layers)
        try:
            reader(path, recording)
        except (ValueError, ArithmeticError, OSError, pa.ArrowException) as exc:
            raise InputError(str(path), f"is damaged: {str(exc).splitlines()[0][:200]}") from exc
        for layer in recording.layers[before:]:
            _check_folder(layer, path, recording)
        if sum(len(layer.requests) for layer in recording.layers) > MAX_REQUESTS:
            raise InputError(str(path), f"more than {MAX_REQUESTS} requests")
    extents.place_extents(recording)
    _rank(recording, order)
    keep_plausible(recording)
    if not any(len(layer.requests) for layer in recording.layers):
        said = "; ".join(recording.remarks[:3])
        raise InputError(str(paths[0]), f"has no requests{': ' + said if said else ''}")
    return recording


def _check_folder(layer: TracedLayer, path: Path, recording: LayerRecording) -> None:
    """Raises InputError for a layer that another folder has, too: clocks and devices of two nodes differ."""
    layer.folder = str(path.resolve().parent)
    for other in recording.layers:
        same = other is not layer and (other.name, other.device) == (layer.name, layer.device)
        if same and other.folder and other.folder != layer.folder:
            raise InputError(
                str(path),
                f"has layer {layer.label}, as a trace in {other.folder} has: analyse one recording at a time",
            )


def _rank(recording: LayerRecording, order: tuple[str, ...]) -> None:
    if not order:
        return
    for layer in recording.layers:
        layer.rank = order.index(layer.name) if layer.name in order else len(order) + layer.rank


def _files(paths: Sequence[Path]) -> list[tuple[Path, bool]]:
    """The files, and whether the user named each; of a folder perf's text in place of tracefs' of the
    same run.
    """
    files: list[tuple[Path, bool]] = []
    for path in paths:
        if not path.is_dir():
            files.append((path, True))
            continue
        with InputError.from_os_errors(str(path)):
            inside = sorted(
                entry for entry in path.iterdir() if entry.is_file() and not entry.name.startswith(".")
            )
        if not inside:
            raise InputError(str(path), "the folder has no files")
        if any(entry.name.startswith("perf.") for entry in inside):
            inside = [entry for entry in inside if not entry.name.startswith("tracefs.")]
        files += [(entry, False) for entry in inside]
    if len(files) > MAX_FILES:
        raise InputError(str(paths[0]), f"more than {MAX_FILES} files")
    return files
