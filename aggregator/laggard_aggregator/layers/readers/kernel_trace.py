"""Text of kernel tracepoints, as `perf script` and tracefs print it: system calls, block queue, devices.

app 23771/23777 [000]   6233.282249816: syscalls:sys_enter_pread64: fd: 0x3, buf: 0x55, count: 0x10000, pos:
0x0
app-23777   [000] .....  6233.282247: sys_pread64(fd: 3, buf: 0x55, count: 0x10000, pos: 0x7f50000)
app 23771/23777 [000]   6233.282274192: block:block_bio_queue: 7,0 RS 83304 + 128 [app]
app 23771/23777 [000]   6233.282282975: block:block_rq_issue: 7,0 RS 65536 () 83304 + 128 0x2,0,4 [app]
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from laggard_aggregator.layers.columns import OTHER, READ, WRITE, Ints, LayerRecording
from laggard_aggregator.layers.readers import block_events, system_calls
from laggard_aggregator.layers.readers.text_lines import (
    contains,
    extracted,
    hexadecimals,
    integers,
    line_blocks,
    nanoseconds,
)

Narrow = NDArray[np.int32]
_FAR_FD = 2**31 - 1

_LINE = (
    r"^ *.*?[ -] *(?P<pid>[0-9]+)(?:/ *(?P<tid>[0-9]+))? +(?:\( *(?P<tgid>[0-9]+|-+)\) +)?(?:\[[0-9]+\] +)?"
    r"(?:[^0-9 \[]\S* +)?"
    r"(?P<seconds>[0-9]+)\.(?P<fraction>[0-9]{6,9}): +(?:[0-9]+ +)?(?P<rest>[a-z].*)"
)
_CALL = (
    r"^(?:syscalls:sys_enter_(?P<perf>[a-z_0-9]+): ?|sys_(?P<tracefs>[a-z_0-9]+)\()"
    r"(?:(?:[a-z_]*fd[a-z_]*|mq|epfd|sock): (?P<fd>(?:0x)?[0-9a-f]+))?(?P<arguments>[^\n]*)"
)
_RETURN = (
    r"^(?:syscalls:sys_exit_(?P<perf>[a-z_0-9]+): ?|sys_(?P<tracefs>[a-z_0-9]+) -> )"
    r"(?P<result>0x[0-9a-f]+|-?[0-9]+)"
)
_BLOCK = (
    r"^(?:block:)?block_(?P<event>[a-z_]+): (?P<device>[0-9]+,[0-9]+) (?P<flags>[A-Z]+) (?:[0-9]+ )?"
    r"(?:\([^\n]*?\) )?(?P<sector>[0-9]+) \+ (?P<sectors>[0-9]+)"
)
_LOST = r"(?:LOST (?P<lost>[0-9]+) EVENTS?|PERF_RECORD_LOST[^\n]*lost (?P<perf>[0-9]+))"
_WRITTEN = r"entries-in-buffer/entries-written: (?P<kept>[0-9]+)/(?P<written>[0-9]+)"
_COUNT = r"(?:count|vlen|len|flags): (?P<value>(?:0x)?[0-9a-f]+)"
_OFFSET = r"(?:pos|offset|pos_l): (?P<value>(?:0x)?[0-9a-f]+)"


@dataclass(slots=True)
class _Gathered:
    """Columns of all blocks of the file."""

    calls: list[system_calls.CallEvents]
    blocks: list[block_events.BlockEvents]
    lines: int = 0
    known: int = 0
    lost: int = 0
    resolution_ns: int = 1


def matches(first: bytes) -> bool:
    """True when the first bytes of a file are of this format."""
    text = first.decode(errors="replace")
    if text.startswith("# tracer:"):
        return True
    lines, _, _ = text.rpartition("\n")
    known = [line for line in (lines or text).splitlines() if line and not line.startswith("#")][:200]
    if not known:
        return False
    import pyarrow as pa  # noqa: PLC0415

    indexes, groups = extracted(pa.array(known), _LINE)
    if not len(indexes):
        return False
    return bool(pc.any(pc.match_substring_regex(groups["rest"], _is_ours())).as_py())


def _is_ours() -> str:
    return r"^(?:syscalls:sys_|block:block_|sys_[a-z_0-9]+(?:\(| ->)|block_[a-z_]+: )"


def read(path: Path, recording: LayerRecording) -> None:
    """Adds the file's system calls, block requests and device requests. Raises InputError."""
    gathered = _Gathered([], [])
    for lines in line_blocks(path):
        _add(lines, gathered)
    clock = str(path)
    calls, remarks, lost = system_calls.requests(gathered.calls, recording)
    if calls is not None:
        calls.clock, calls.resolution_ns = clock, gathered.resolution_ns
        recording.layers.append(calls)
    layers, block_remarks, block_lost = block_events.layers(gathered.blocks, recording)
    for layer in layers:
        layer.clock, layer.resolution_ns = clock, gathered.resolution_ns
        recording.layers.append(layer)
    recording.lost_events += gathered.lost + lost + block_lost
    if gathered.lost:
        recording.remarks.append(f"{path.name}: the recorder lost {gathered.lost} events")
    recording.remarks += [f"{path.name}: {remark}" for remark in (*remarks, *block_remarks)]
    if gathered.known < gathered.lines:
        left = gathered.lines - gathered.known
        recording.remarks.append(f"{path.name}: {left} of {gathered.lines} lines are of other events")


def _add(lines: Any, gathered: _Gathered) -> None:
    if contains(lines, b"LOST"):
        _, lost = extracted(lines, _LOST)
        gathered.lost += int(integers(lost["lost"]).clip(0).sum() + integers(lost["perf"]).clip(0).sum())
    if contains(lines, b"entries-written"):
        _, written = extracted(lines, _WRITTEN)
        gathered.lost += int((integers(written["written"]) - integers(written["kept"])).clip(0).sum())
    comments = pc.starts_with(lines, "#")
    indexes, groups = extracted(lines, _LINE)
    gathered.lines += len(lines) - int(pc.sum(comments).as_py() or 0)
    if not len(indexes):
        return
    time = nanoseconds(groups["seconds"], groups["fraction"])
    if pc.all(pc.equal(pc.utf8_length(groups["fraction"]), 6)).as_py():
        gathered.resolution_ns = 1000
    process = integers(groups["pid"])
    thread = integers(groups["tid"])
    has_process = thread >= 0
    thread = np.where(has_process, thread, process)
    process = np.where(has_process, process, integers(pc.replace_substring_regex(groups["tgid"], "-+", "")))
    rest = groups["rest"]
    is_block = pc.starts_with(rest, "block")
    of_block = is_block.to_numpy(zero_copy_only=False)
    calls, blocks = ~of_block, of_block
    process, thread = process.astype(np.int32), thread.astype(np.int32)
    gathered.known += _add_calls(
        rest.filter(pc.invert(is_block)), time[calls], process[calls], thread[calls], gathered
    )
    gathered.known += _add_blocks(rest.filter(is_block), time[blocks], thread[blocks], gathered)


def _add_calls(rest: Any, time: Ints, process: Narrow, thread: Narrow, gathered: _Gathered) -> int:
    at, entered = extracted(rest, _CALL)
    back, left = extracted(rest, _RETURN)
    if len(at) or len(back):
        arguments = entered["arguments"]
        gathered.calls.append(
            system_calls.in_order(
                np.concatenate([at, back]),
                time=np.concatenate([time[at], time[back]]),
                process=np.concatenate([process[at], process[back]]),
                thread=np.concatenate([thread[at], thread[back]]),
                name=np.concatenate([call_names(_either(entered)), call_names(_either(left))]),
                is_return=np.repeat([False, True], [len(at), len(back)]),
                fd=np.concatenate([_narrow(hexadecimals(entered["fd"])), np.full(len(back), -1, np.int32)]),
                size=np.concatenate([_argument(arguments, _COUNT), np.zeros(len(back), np.int64)]),
                offset=np.concatenate([_argument(arguments, _OFFSET), np.full(len(back), -1)]),
                result=np.concatenate([np.zeros(len(at), np.int64), _results(left["result"])]),
                space=np.full(len(at) + len(back), -1, np.int32),
            )
        )
    return len(at) + len(back)


def _narrow(values: Ints) -> Narrow:
    """Numbers that fit 32 bits; others are unknown."""
    return np.where((values >= 0) & (values < _FAR_FD), values, -1).astype(np.int32)


def _results(texts: Any) -> NDArray[np.int64]:
    is_hex = pc.starts_with(texts, "0x")
    found = np.zeros(len(texts), np.int64)
    mask = is_hex.to_numpy(zero_copy_only=False)
    found[mask] = hexadecimals(texts.filter(is_hex))
    found[~mask] = integers(texts.filter(pc.invert(is_hex)))
    return found


def _argument(arguments: Any, pattern: str) -> Ints:
    found = pc.extract_regex(arguments, pattern)
    values = pc.fill_null(pc.struct_field(found, "value"), "")
    return hexadecimals(values)


def _either(groups: dict[str, Any]) -> Any:
    return pc.if_else(pc.equal(groups["perf"], ""), groups["tracefs"], groups["perf"])


def call_names(names: Any) -> NDArray[np.int16]:
    """Codes of system calls."""
    encoded = names.dictionary_encode()
    codes = np.array(
        [system_calls.code_of(name) for name in encoded.dictionary.to_pylist()] or [-1], np.int16
    )
    return codes[np.asarray(encoded.indices.to_numpy(zero_copy_only=False))] if len(names) else codes[:0]


def _add_blocks(rest: Any, time: Ints, thread: Narrow, gathered: _Gathered) -> int:
    at, groups = extracted(rest, _BLOCK)
    if not len(at):
        return 0
    flags = groups["flags"].dictionary_encode()
    kinds = np.array([operation_of(text) for text in flags.dictionary.to_pylist()], np.int8)
    gathered.blocks.append(
        block_events.BlockEvents(
            time=time[at],
            thread=thread[at],
            event=coded(groups["event"], block_events.EVENTS),
            device=block_events.device_numbers(groups["device"]),
            operation=kinds[np.asarray(flags.indices.to_numpy(zero_copy_only=False))],
            sector=integers(groups["sector"]),
            sectors=integers(groups["sectors"]).clip(0, _FAR_FD).astype(np.int32),
        )
    )
    return len(at)


def coded(texts: Any, known: dict[str, int]) -> NDArray[np.int8]:
    """Codes of texts, 0 for unknown ones."""
    encoded = texts.dictionary_encode()
    codes = np.array([known.get(text, 0) for text in encoded.dictionary.to_pylist()], np.int8)
    found: NDArray[np.int8] = codes[np.asarray(encoded.indices.to_numpy(zero_copy_only=False))]
    return found


def operation_of(flags: str) -> int:
    """Of `RS`, `WSM`, `FWFSM`, `FF`, `D`: a leading F is a flush before the write itself."""
    kind = flags.removeprefix("F")[:1]
    return {"R": READ, "W": WRITE}.get(kind, OTHER)
