"""Text of `darshan-dxt-parser`, of one log or several: MPI-IO and POSIX layers of a job, times to 0.1 ms.

The parser is the one that the agent folds with.
"""

from functools import partial
from pathlib import Path

from laggard_aggregator.files.compressed import open_input
from laggard_aggregator.layers.columns import LayerRecording, TracedLayer, rank_of
from laggard_aggregator.layers.readers.record_columns import RecordColumns
from laggard_common.errors import InputError
from laggard_common.trace_formats.dxt import DxtParser, is_dxt
from laggard_common.trace_formats.line_reader import TraceReader


def matches(first: bytes) -> bool:
    """True when the first bytes of a file are of this format."""
    return is_dxt(first)


def read(path: Path, recording: LayerRecording) -> None:
    """Adds a layer for each module, `mpiio` and `posix`. Raises InputError."""
    parser = DxtParser()
    reader = TraceReader(parser.parse)
    modules = {"mpiio": RecordColumns(recording.names), "posix": RecordColumns(recording.names)}
    with open_input(path, cut=partial(recording.remark, path)) as stream:
        for record in reader.read(stream):
            module, rank, _ = record.descriptor.split(":")
            modules[module].add(record, process=int(rank), fd=-1, file=record.path)
    if parser.dumps > 1 and parser.without_start:
        raise InputError(
            str(path),
            f"{parser.without_start} of its {parser.dumps} dumps have no start_time: analyse one dump a file",
        )
    if reader.not_understood:
        recording.remarks.append(
            f"{path.name}: {reader.not_understood} of {reader.lines} lines were not understood"
        )
    recording.remarks += [f"{path.name}: {text}" for text in parser.remarks()]
    if reader.torn:
        recording.remarks.append(f"{path.name}: the last line has no end and was left out")
    if not any(map(len, modules.values())):
        recording.remark(path, "has no line of DXT: darshan-dxt-parser prints them, of runs with DXT on")
    for name, columns in modules.items():
        if len(columns):
            recording.layers.append(
                TracedLayer(
                    name,
                    columns.requests(),
                    rank_of(name),
                    clock="wall",
                    resolution_ns=100_000,
                    durations=True,
                )
            )
