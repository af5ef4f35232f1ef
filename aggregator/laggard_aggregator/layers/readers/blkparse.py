"""Text of `blkparse`: actions Q (queued), D (issued), C (completed) and R (put back).

8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
8,0    3        2     0.000900000     0  C   W 223490 + 8 [0]

A completion ends with its error, in 16 bits without a sign (65531 is -5), other actions with the name of a
program.
"""

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.layers.columns import LayerRecording
from laggard_aggregator.layers.readers import block_events
from laggard_aggregator.layers.readers.kernel_trace import coded, operation_of
from laggard_aggregator.layers.readers.text_lines import (
    extracted,
    integers,
    line_blocks,
    matches_lines,
    nanoseconds,
)

_LINE = (
    r"^ *(?P<device>[0-9]+,[0-9]+) +[0-9]+ +[0-9]+ +(?P<seconds>[0-9]+)\.(?P<fraction>[0-9]{6,9}) +"
    r"(?P<pid>[0-9]+) +(?P<action>[A-Z]+) +(?P<flags>[A-Z]+) (?P<sector>[0-9]+) \+ (?P<sectors>[0-9]+)"
)
_ERROR = r"\[-?0*[1-9][0-9]*\]\s*$"
_ACTIONS = {
    "Q": block_events.QUEUED,
    "D": block_events.ISSUED,
    "C": block_events.COMPLETED,
    "R": block_events.REQUEUED,
}


def matches(first: bytes) -> bool:
    """True when the first bytes of a file are of this format."""
    return matches_lines(first, _LINE)


def read(path: Path, recording: LayerRecording) -> None:
    """Adds the block and device layers of each device. Raises InputError."""
    parts = []
    for lines in line_blocks(path, partial(recording.remark, path)):
        at, groups = extracted(lines, _LINE)
        if not len(at):
            continue
        flags = groups["flags"].dictionary_encode()
        kinds = np.array([operation_of(text) for text in flags.dictionary.to_pylist()], np.int8)
        parts.append(
            block_events.BlockEvents(
                time=nanoseconds(groups["seconds"], groups["fraction"]),
                thread=integers(groups["pid"]),
                event=coded(groups["action"], _ACTIONS),
                device=block_events.device_numbers(groups["device"]),
                operation=kinds[np.asarray(flags.indices.to_numpy(zero_copy_only=False))],
                sector=integers(groups["sector"]),
                sectors=integers(groups["sectors"]),
                has_failed=np.asarray(
                    pc.match_substring_regex(lines.take(pa.array(at)), _ERROR).to_numpy(zero_copy_only=False)
                ),
            )
        )
    blocks = block_events.layers(parts, recording)
    for layer in blocks.layers:
        layer.clock = str(path)
        recording.layers.append(layer)
    recording.lost_events += blocks.lost
    recording.remarks += [f"{path.name}: {remark}" for remark in blocks.remarks]
