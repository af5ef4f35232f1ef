"""File positions in traces of the kernel: appends, offset -1, and descriptors that threads may share."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.layers.columns import LayerRecording
from laggard_aggregator.layers.readers import kernel_trace
from tests.aggregator.layers.analysed import analysed

O_APPEND = 0x400


class Calls:
    """Lines of tracefs with or without process ids."""

    def __init__(self, *, with_process: bool = True) -> None:
        self.lines: list[str] = []
        self.with_process = with_process

    def call(self, name: str, arguments: str, result: int, *, thread: int = 11) -> None:
        """A call of 1 us; a new one each 10 us."""
        process = "(     10) " if self.with_process else ""
        for text in (f"sys_{name}({arguments})", f"sys_{name} -> 0x{result % 2**64:x}"):
            stamp = f"{1000 + len(self.lines) * 5e-6:.6f}"
            self.lines.append(f"app-{thread} {process}[000] ..... {stamp}: {text}\n")

    def open(self, flags: int, *, thread: int = 11) -> None:
        """An open that returns 3."""
        self.call("openat", f"dfd: ffffff9c, filename: 7f00, flags: {flags:x}, mode: 0", 3, thread=thread)

    def move(self, name: str, size: int, result: int, *, thread: int = 11) -> None:
        """A read or write at the file's position."""
        if name.endswith("v2"):
            arguments = f"fd: 3, vec: 7f00, vlen: 1, pos_l: {2**64 - 1:x}, pos_h: 0, flags: 0"
        else:
            arguments = f"fd: 3, buf: 7f00, count: {size:x}"
        self.call(name, arguments, result, thread=thread)

    def write(self, folder: Path) -> Path:
        """The file of the trace."""
        path = folder / "t.txt"
        path.write_text("# tracer: nop\n#\n" + "".join(self.lines))
        return path


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["open", "append", "lseek", "read", "write", "preadv2", "pwritev2", "pwrite64"]),
        st.integers(0, 10**6),
        st.booleans(),
    ),
    max_size=30,
)


@given(OPERATIONS)
def test_positions_are_those_of_a_plain_model(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, int, bool]]
) -> None:
    built, expected = Calls(), []
    position: int | None = 0
    append = False
    built.open(2)
    for name, number, fails in operations:
        if name in ("open", "append"):
            append, position = name == "append", 0
            built.open(2 | (O_APPEND if append else 0))
        elif name == "lseek":
            built.call("lseek", f"fd: 3, offset: {number:x}, whence: 0", number)
            position = number
        elif name == "pwrite64":
            built.call("pwrite64", f"fd: 3, buf: 7f, count: {number:x}, pos: {number:x}", number)
            expected.append(-1 if append else number)
        else:
            built.move(name, number, -5 if fails else number)
            if fails:
                continue
            if append and "write" in name:
                position = None
            expected.append(-1 if position is None else position)
            position = None if position is None else position + number
    recording = LayerRecording()
    kernel_trace.read(built.write(tmp_path_factory.mktemp("trace")), recording)
    (layer,) = recording.layers
    assert layer.requests.start.tolist() == expected


@pytest.mark.parametrize(("with_process", "runs"), [(True, 1), (False, 0)])
def test_threads_that_may_share_a_descriptor(tmp_path: Path, with_process: bool, runs: int) -> None:
    built = Calls(with_process=with_process)
    built.open(0)
    for at in range(8):
        built.move("read", 4096, 4096, thread=11 + at % 2)
    found = analysed(built.write(tmp_path))
    layer = found.layer("syscall")
    assert (layer["runs"], layer["completed_bytes"]) == (runs, 32768)
    assert ("may share are unknown" in found.remarks) == (not with_process)


def test_threads_with_opens_of_their_own(tmp_path: Path) -> None:
    built = Calls(with_process=False)
    for thread in (11, 12):
        built.open(0, thread=thread)
    for at in range(8):
        built.move("read", 4096, 4096, thread=11 + at % 2)
    assert analysed(built.write(tmp_path)).layer("syscall")["streams"] > 0


@pytest.mark.parametrize("opens", [False, True])
def test_positions_that_are_taken_for_the_beginning_are_told(tmp_path: Path, opens: bool) -> None:
    calls = Calls()
    if opens:
        calls.open(0)
    calls.move("read", 4096, 4096)
    calls.move("read", 4096, 4096)
    calls.call("pread64", "fd: 3, buf: 7f00, count: 1000, pos: 0", 4096)
    found = analysed(calls.write(tmp_path))
    assert ("2 calls are placed as if each file had been at its beginning" in found.remarks) == (not opens)


def test_calls_that_are_not_counted_are_named(tmp_path: Path) -> None:
    built = Calls()
    built.open(0)
    built.move("read", 4096, 4096)
    built.call("copy_file_range", "fd_in: 3, off_in: 0, fd_out: 4, off_out: 0, len: 1000, flags: 0", 4096)
    built.call("io_uring_enter", "fd: 5, to_submit: 8, min_complete: 8, flags: 1, argp: 0, argsz: 8", 8)
    found = analysed(built.write(tmp_path))
    assert "1 of copy_file_range, 1 of io_uring_enter: the data that these calls move" in found.remarks
