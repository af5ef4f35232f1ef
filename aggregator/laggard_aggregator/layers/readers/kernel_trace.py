"""Text of kernel tracepoints, as `perf script`, tracefs and `trace-cmd report` print it.

app 23771/23777 [000]   6233.282249816: syscalls:sys_enter_pread64: fd: 0x3, buf: 0x55, count: 0x10000, pos:
0x0
app-23777   [000] .....  6233.282247: sys_pread64(fd: 3, buf: 0x55, count: 0x10000, pos: 0x7f50000)
app 23771/23777 [000]   6233.282274192: block:block_bio_queue: 7,0 RS 83304 + 128 [app]
app-23777   [000]  6233.282247: sys_enter_pread64:    fd: 0x00000003, buf: 0x55, count: 0x00010000, pos: 0x0
app 23771/23777 [000]   6233.282282975: block:block_rq_issue: 7,0 RS 65536 () 83304 + 128 0x2,0,4 [app]
"""

import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from laggard_aggregator.layers.columns import OTHER, READ, WRITE, Ints, LayerRecording
from laggard_aggregator.layers.readers import block_events, file_system_events, system_calls
from laggard_aggregator.layers.readers.text_lines import (
    extracted,
    hexadecimals,
    integers,
    line_blocks,
    nanoseconds,
)

Narrow = NDArray[np.int32]
_SAMPLE_BYTES = 1 << 18
_FAR_FD = 2**31 - 1
_BRACKET, _ZERO, _MINUS = np.uint8(ord("[")), np.uint8(ord("0")), np.uint8(ord("-"))
_MINUS_BEFORE_END = (3, 4, 5, 6)
"""Of `[-5]` to `[-121]`, with a blank or the like at the end of the line or without."""
_THREE = np.array([1, 2, 3])

_BEFORE_CPU = (
    r"^ *.*?[ -] *(?P<pid>[0-9]{1,10})(?:/ *(?P<tid>[0-9]{1,10}))? +(?:\( *(?P<tgid>[0-9]{1,10}|-+)\) +)?$"
)
"""The start of a line up to the processor's number. A trace has few different ones."""
_SINCE_CPU = (
    r"^\[[0-9]+\] +(?:[^0-9 \[]\S* +)?(?P<seconds>[0-9]{1,10})\.(?P<fraction>[0-9]{6,9}): +(?:[0-9]+ +)?"
    r"(?P<rest>[a-z].*)"
)
_WITHOUT_CPU = (
    r"^ *.*?[ -] *(?P<pid>[0-9]{1,10})(?:/ *(?P<tid>[0-9]{1,10}))? +(?:\( *(?P<tgid>[0-9]{1,10}|-+)\) +)?"
    r"(?:\[[0-9]+\] +)?(?:[^0-9 \[]\S* +)?"
    r"(?P<seconds>[0-9]{1,10})\.(?P<fraction>[0-9]{6,9}): +(?:[0-9]+ +)?(?P<rest>[a-z].*)"
)
# RE2 is fast for expressions that never have to choose, with at most four groups.
_CALL = (
    r"^(?:syscalls:sys_enter_|sys_enter_|sys_)(?P<name>[a-z_0-9]+)(?:: ?|\()"
    r"(?:(?P<first>[a-z_]+): (?P<fd>[0-9a-fx]+)(?P<arguments>(?:[^0-9a-fx\n][^\n]*)?)|\)?$)"
)
_SECOND_AND_ON = (
    r"^, [a-z_]+: [0-9a-fx]+, (?P<third>[a-z_]+): (?P<size>[0-9a-fx]+)"
    r"(?:, (?P<fourth>[a-z_]+): (?P<offset>[0-9a-fx]+))?"
)
_SIZES, _OFFSETS = ("count", "vlen", "len", "flags"), ("pos", "offset", "pos_l")
_RETURN = (
    r"^(?:(?:syscalls:)?sys_exit_(?P<perf>[a-z_0-9]+): ?|sys_(?P<tracefs>[a-z_0-9]+) -> )"
    r"(?P<result>0x[0-9a-f]+|-?[0-9]+)"
)
_BLOCK = (
    r"^(?:block:)?block_(?P<subject>[a-z_]+: [0-9]+,[0-9]+ [A-Z]+) (?P<middle>[^+\n]*)\+ (?P<sectors>[0-9]+)"
)
_ERROR = r"\[-[0-9]{1,3}\]\s?$"
"""At the end of a completion: the error of the device."""
_SUBJECT = re.compile(r"([a-z_]{1,40}): ([0-9]{1,9},[0-9]{1,9}) ([A-Z]{1,16})")
_LOST = r"(?:LOST (?P<lost>[0-9]+) EVENTS?|PERF_RECORD_LOST[^\n]*lost (?P<perf>[0-9]+))"
_WRITTEN = r"entries-in-buffer/entries-written: (?P<kept>[0-9]+)/(?P<written>[0-9]+)"
_COUNT = r"(?:count|vlen|len|flags): (?P<value>(?:0x)?[0-9a-f]+)"
_OFFSET = r"(?:pos|offset|pos_l): (?P<value>(?:0x)?[0-9a-f]+)"


@dataclass(slots=True)
class _Gathered:
    """Columns of all blocks of the file. `is_padded`: blanks follow the names of events, as of trace-cmd."""

    calls: list[system_calls.CallEvents]
    blocks: list[block_events.BlockEvents]
    file_system: list[file_system_events.FileSystemEvents] = field(default_factory=list)
    lines: int = 0
    known: int = 0
    lost: int = 0
    resolution_ns: int = 1
    is_padded: bool = False


def matches(first: bytes) -> bool:
    """True when the first bytes of a file are of this format."""
    text = first.decode(errors="replace")
    if text.startswith("# tracer:"):
        return True
    lines, _, _ = text.rpartition("\n")
    known = [line for line in (lines or text).splitlines() if line and not line.startswith("#")][:200]
    if not known:
        return False
    indexes, groups = extracted(pa.array(known), _WITHOUT_CPU)
    if not len(indexes):
        return False
    return bool(pc.any(pc.match_substring_regex(groups["rest"], _is_ours())).as_py())


def _is_ours() -> str:
    return (
        r"^(?:syscalls:sys_|block:block_|sys_[a-z_0-9]+(?:\(| ->|: )|block_[a-z_]+: |"
        r"(?:iomap:)?iomap_dio_|(?:ext4:)?ext4_(?:da_)?write_)"
    )


def read(path: Path, recording: LayerRecording) -> None:
    """Adds the file's system calls, block requests and device requests. Raises InputError."""
    gathered = _Gathered([], [])
    for lines in line_blocks(path, partial(recording.remark, path)):
        _add(lines, gathered)
    pa.default_memory_pool().release_unused()
    calls = system_calls.layers(gathered.calls, recording)
    file_system = file_system_events.layer(gathered.file_system, next(iter(calls.layers), None), recording)
    blocks = block_events.layers(gathered.blocks, recording)
    for layer in (*calls.layers, file_system, *blocks.layers):
        if layer is not None:
            layer.clock, layer.resolution_ns = str(path), gathered.resolution_ns
            recording.layers.append(layer)
    recording.lost_events += gathered.lost + calls.lost + blocks.lost
    if gathered.lost:
        recording.remarks.append(f"{path.name}: the recorder lost {gathered.lost} events")
    recording.remarks += [f"{path.name}: {remark}" for remark in (*calls.remarks, *blocks.remarks)]
    if gathered.known < gathered.lines:
        left = gathered.lines - gathered.known
        recording.remarks.append(f"{path.name}: {left} of {gathered.lines} lines are of other events")


def _add(lines: Any, gathered: _Gathered) -> None:
    text = bytes(lines.buffers()[2])
    if b"LOST" in text:
        _, lost = extracted(lines, _LOST)
        gathered.lost += int(integers(lost["lost"]).clip(0).sum() + integers(lost["perf"]).clip(0).sum())
    if b"entries-written" in text:
        _, written = extracted(lines, _WRITTEN)
        gathered.lost += int((integers(written["written"]) - integers(written["kept"])).clip(0).sum())
    comments = pc.starts_with(lines, "#")
    gathered.lines += len(lines) - int(pc.sum(comments).as_py() or 0)
    parts = _cut_at_cpu(lines)
    if parts is None:
        _, groups = extracted(lines, _WITHOUT_CPU)
    else:
        at, groups = extracted(parts[1], _SINCE_CPU)
        groups |= _heads(parts[0].take(pa.array(at)))
    if not len(groups["rest"]):
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
    gathered.is_padded = gathered.is_padded or b":  " in text[:_SAMPLE_BYTES]
    if gathered.is_padded:
        rest = pc.replace_substring_regex(rest, r"^([a-z_0-9:]+:) +", r"\1 ")
    is_block = pc.starts_with(rest, "block")
    of_block = is_block.to_numpy(zero_copy_only=False)
    is_file_system = pc.or_(*(pc.starts_with(rest, prefix) for prefix in file_system_events.PREFIXES))
    if pc.any(is_file_system).as_py():
        at = np.flatnonzero(is_file_system.to_numpy(zero_copy_only=False))
        batches = file_system_events.events(rest.take(pa.array(at)), time[at], thread[at].astype(np.int32))
        gathered.file_system += batches
        gathered.known += sum(len(batch.time) for batch in batches)
    calls, blocks = ~of_block, of_block
    process, thread = process.astype(np.int32), thread.astype(np.int32)
    gathered.known += _add_calls(
        rest.filter(pc.invert(is_block)), time[calls], process[calls], thread[calls], gathered
    )
    gathered.known += _add_blocks(rest.filter(is_block), time[blocks], thread[blocks], gathered)


def _cut_at_cpu(lines: Any) -> tuple[Any, Any] | None:
    """The lines cut before the first bracket with a number of three digits or more: `[000]`.

    None where a line has none. Lines that are no events have none; then the slower way is taken.
    """
    text = np.frombuffer(lines.buffers()[2], np.uint8)
    starts = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + len(lines) + 1]
    brackets = np.flatnonzero(text[:-4] == _BRACKET)
    digits = text[np.minimum(brackets[:, None] + _THREE, len(text) - 1)] - _ZERO
    brackets = brackets[(digits <= 9).all(axis=1)]
    which = np.searchsorted(brackets, starts[:-1])
    if not len(brackets) or which[-1] >= len(brackets):
        return None
    cuts = brackets[which]
    if (cuts >= starts[1:]).any():
        return None
    offsets = np.empty(2 * len(lines) + 1, np.int32)
    offsets[:-1:2], offsets[1::2], offsets[-1] = starts[:-1], cuts, starts[-1]
    both = pa.Array.from_buffers(pa.utf8(), 2 * len(lines), [None, pa.py_buffer(offsets), lines.buffers()[2]])
    even = np.arange(0, 2 * len(lines), 2)
    return both.take(pa.array(even)), both.take(pa.array(even + 1))


def _heads(texts: Any) -> dict[str, Any]:
    """Process and thread of each line, by its different starts."""
    encoded = texts.dictionary_encode()
    groups = pc.extract_regex(encoded.dictionary, _BEFORE_CPU)
    return {
        name: pc.fill_null(pc.struct_field(groups, name), "").take(encoded.indices)
        for name in ("pid", "tid", "tgid")
    }


def _add_calls(rest: Any, time: Ints, process: Narrow, thread: Narrow, gathered: _Gathered) -> int:
    back, left = extracted(rest, _RETURN)
    is_entry = np.ones(len(rest), np.bool_)
    is_entry[back] = False
    entries = np.flatnonzero(is_entry)
    at, entered = extracted(rest.filter(pa.array(is_entry)), _CALL)
    at = entries[at]
    if len(at) or len(back):
        size, offset = _sizes_and_offsets(entered["arguments"])
        gathered.calls.append(
            system_calls.in_order(
                np.concatenate([at, back]),
                time=np.concatenate([time[at], time[back]]),
                process=np.concatenate([process[at], process[back]]),
                thread=np.concatenate([thread[at], thread[back]]),
                name=np.concatenate([call_names(entered["name"]), call_names(_either(left))]),
                is_return=np.repeat([False, True], [len(at), len(back)]),
                fd=np.concatenate([_descriptors(entered), np.full(len(back), -1, np.int32)]),
                size=np.concatenate([size, np.zeros(len(back), np.int64)]),
                offset=np.concatenate([offset, np.full(len(back), -1)]),
                result=np.concatenate([np.zeros(len(at), np.int64), _results(left["result"])]),
                space=np.full(len(at) + len(back), -1, np.int32),
            )
        )
    return len(at) + len(back)


def _descriptors(entered: dict[str, Any]) -> Narrow:
    """First arguments that are descriptors."""
    descriptors = _narrow(_hexadecimals(entered["fd"]))
    names = entered["first"].dictionary_encode()
    is_fd = np.array(["fd" in (name or "") for name in names.dictionary.to_pylist()], np.bool_)
    if not is_fd.all():
        descriptors[~is_fd[np.asarray(names.indices.to_numpy(zero_copy_only=False))]] = -1
    return descriptors


def _hexadecimals(texts: Any) -> Ints:
    """Hexadecimal numbers; texts that are none, such as `0x0x`, are unknown."""
    try:
        return hexadecimals(texts)
    except pa.ArrowInvalid:
        good = pc.match_substring_regex(texts, "^(?:0x)?[0-9a-f]+$")
        return hexadecimals(pc.if_else(good, texts, ""))


def _sizes_and_offsets(arguments: Any) -> tuple[Ints, Ints]:
    """Bytes, buffers or flags, and offsets, of entries, by the names of their third and fourth argument."""
    groups = pc.extract_regex(arguments, _SECOND_AND_ON)
    fields = {
        name: pc.fill_null(pc.struct_field(groups, name), "")
        for name in ("third", "size", "fourth", "offset")
    }
    lacking = pc.equal(fields["size"], "")
    size = _named(fields["third"], fields["size"], _SIZES)
    offset = _named(fields["fourth"], fields["offset"], _OFFSETS)
    if pc.any(lacking).as_py():
        unusual = pc.and_(lacking, pc.match_substring_regex(arguments, _COUNT))
        at = np.flatnonzero(unusual.to_numpy(zero_copy_only=False))
        chosen = arguments.take(pa.array(at))
        size[at], offset[at] = _argument(chosen, _COUNT), _argument(chosen, _OFFSET)
    return size, offset


def _named(names: Any, texts: Any, wanted: tuple[str, ...]) -> Ints:
    known = pc.is_in(names, pa.array(wanted))
    return _hexadecimals(pc.if_else(known, texts, "")).copy()


def _narrow(values: Ints) -> Narrow:
    """Numbers that fit 32 bits; others are unknown."""
    return np.where((values >= 0) & (values < _FAR_FD), values, -1).astype(np.int32)


def _results(texts: Any) -> NDArray[np.int64]:
    is_hex = pc.starts_with(texts, "0x")
    values = np.zeros(len(texts), np.int64)
    mask = is_hex.to_numpy(zero_copy_only=False)
    values[mask] = hexadecimals(texts.filter(is_hex))
    values[~mask] = integers(texts.filter(pc.invert(is_hex)))
    return values


def _argument(arguments: Any, pattern: str) -> Ints:
    groups = pc.extract_regex(arguments, pattern)
    values = pc.fill_null(pc.struct_field(groups, "value"), "")
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
    subjects = groups["subject"].dictionary_encode()
    known = [_SUBJECT.fullmatch(text) for text in subjects.dictionary.to_pylist()]
    which = np.asarray(subjects.indices.to_numpy(zero_copy_only=False))
    events = np.array([block_events.EVENTS.get(m[1], 0) if m else 0 for m in known], np.int8)
    numbers = np.array([block_events.number_of(m[2]) if m else 0 for m in known], np.int64)
    kinds = np.array([operation_of(m[3]) if m else OTHER for m in known], np.int8)
    gathered.blocks.append(
        block_events.BlockEvents(
            time=time[at],
            thread=thread[at],
            event=events[which],
            device=numbers[which],
            operation=kinds[which],
            sector=_last_numbers(groups["middle"]),
            sectors=integers(groups["sectors"]).clip(0, _FAR_FD).astype(np.int32),
            has_failed=_have_failed(rest)[at],
        )
    )
    return len(at)


def _have_failed(rest: Any) -> NDArray[np.bool_]:
    """Which events end with an error, of those whose ends are one: others end with a program's name."""
    have_failed = np.zeros(len(rest), np.bool_)
    text = np.frombuffer(rest.buffers()[2], np.uint8)
    ends = np.frombuffer(rest.buffers()[1], np.int32)[rest.offset + 1 : rest.offset + len(rest) + 1]
    at = np.flatnonzero(np.any([text[ends - before] == _MINUS for before in _MINUS_BEFORE_END], axis=0))
    if len(at):
        matched = pc.match_substring_regex(rest.take(pa.array(at)), _ERROR)
        have_failed[at] = matched.to_numpy(zero_copy_only=False)
    return have_failed


def _last_numbers(texts: Any) -> Ints:
    """The decimal number before the blank at the end of each text (`65536 () 83304 `); -1 for none."""
    data = texts.buffers()[2]
    text = np.frombuffer(data, np.uint8) if data is not None else np.zeros(1, np.uint8)
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    start, place = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64) - 2
    value, unit = np.zeros(len(texts), np.int64), 1
    open_ = place >= start
    none = np.ones(len(texts), np.bool_)
    for _ in range(18):
        digit = text[place.clip(0)].astype(np.int64) - int(_ZERO)
        open_ = open_ & (place >= start) & (digit >= 0) & (digit <= 9)
        if not open_.any():
            break
        value += np.where(open_, digit * unit, 0)
        none &= ~open_
        place, unit = place - 1, unit * 10
    return np.where(none, -1, value)


def coded(texts: Any, known: dict[str, int]) -> NDArray[np.int8]:
    """Codes of texts, 0 for unknown ones."""
    encoded = texts.dictionary_encode()
    codes = np.array([known.get(text, 0) for text in encoded.dictionary.to_pylist()], np.int8)
    codes_of_rows: NDArray[np.int8] = codes[np.asarray(encoded.indices.to_numpy(zero_copy_only=False))]
    return codes_of_rows


def operation_of(flags: str) -> int:
    """Of `RS`, `WSM`, `FWFSM`, `FF`, `D`: a leading F is a flush before the write itself."""
    kind = flags.removeprefix("F")[:1]
    return {"R": READ, "W": WRITE}.get(kind, OTHER)
