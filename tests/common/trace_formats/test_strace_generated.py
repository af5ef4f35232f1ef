"""Generated programs: their logs in every form of strace give the bytes and positions that they moved."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from laggard_common.trace_formats.strace import StraceParser

START = 1_700_000_000
PATHS = ("/d/a", "/d/b c", "/d/x = 3")


@dataclass
class Description:
    """An open file of the model."""

    path: str
    position: int | None = 0
    append: bool = False


@dataclass
class Program:
    """Threads and children of a program, the truth of their moves, and the events of its log."""

    shows_files: bool
    tables: dict[int, dict[int, Description]] = field(default_factory=lambda: {100: {}})
    truth: list[tuple[str, int | None, int, str]] = field(default_factory=list)
    calls: list[tuple[int, str]] = field(default_factory=list)

    def fd(self, number: int, file: Description) -> str:
        """A descriptor as -y shows it, or without."""
        return f"{number}<{file.path}>" if self.shows_files else str(number)

    def open(self, pid: int, path: str, *, append: bool) -> None:
        """Opens a file at the lowest free descriptor."""
        table = self.tables[pid]
        number = next(i for i in range(3, 1000) if i not in table)
        table[number] = Description(path, append=append)
        flags = "O_RDWR|O_APPEND" if append else "O_RDWR"
        self.calls.append((pid, f'openat(AT_FDCWD, "{path}", {flags}) = {self.fd(number, table[number])}'))

    def move(self, pid: int, number: int, call: str, moved: int, place: int) -> None:
        """A read or write; `moved` bytes, -1 for a failure."""
        file = self.tables[pid][number]
        operation = "read" if "read" in call else "write"
        at = place if call.startswith("p") and place >= 0 else file.position
        arguments = {
            "read": f'"ab, 7) = 4"..., {max(moved, 0) + 5}',
            "write": f'"ab\\n, 7) = 4"..., {max(moved, 0) + 5}',
            "readv": f'[{{iov_base="x, 1", iov_len={max(moved, 0)}}}], 1',
            "pread64": f'"a", {max(moved, 0) + 5}, {max(place, 0)}',
            "pwrite64": f'"a", {max(moved, 0) + 5}, {max(place, 0)}',
            "preadv": f"[{{iov_len=9}}], 1, {max(place, 0)}",
            "pwritev2": f"[{{iov_len=9}}], 1, {place}, RWF_DSYNC",
            "preadv2": f"[{{iov_len=9}}], 1, {place}, 0",
        }[call]
        if call in ("pread64", "pwrite64", "preadv"):
            at = max(place, 0)
        result = str(moved) if moved >= 0 else "-1 EIO (Input/output error)"
        self.calls.append((pid, f"{call}({self.fd(number, file)}, {arguments}) = {result}"))
        if moved < 0:
            return
        uses_position = call in ("read", "write", "readv") or (call.endswith("v2") and place < 0)
        if operation == "write" and file.append:
            at = None
            if uses_position:
                file.position = None
        elif uses_position and file.position is not None:
            file.position += moved
        self.truth.append((operation, at, moved, file.path))

    def start(self, pid: int, *, shares: bool) -> None:
        """Starts a thread, or a child with a copy of the descriptors."""
        child = 100 + len(self.tables)
        self.tables[child] = self.tables[pid] if shares else dict(self.tables[pid])
        flags = "CLONE_VM|CLONE_FILES|CLONE_THREAD" if shares else "SIGCHLD"
        self.calls.append((pid, f"clone(child_stack=0x7f, flags={flags}) = {child}"))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A program of up to 40 calls."""
    program = Program(shows_files=draw(st.booleans()))
    for _ in range(draw(st.integers(1, 40))):
        pid = draw(st.sampled_from(sorted(program.tables)))
        table = program.tables[pid]
        kind = draw(st.sampled_from(["open", "move", "move", "move", "start", "seek", "dup", "close"]))
        if kind == "open" or (not table and kind != "start"):
            program.open(pid, draw(st.sampled_from(PATHS)), append=draw(st.booleans()))
        elif kind == "start":
            program.start(pid, shares=draw(st.booleans()))
        else:
            number = draw(st.sampled_from(sorted(table)))
            file = table[number]
            if kind == "move":
                call = draw(
                    st.sampled_from(
                        ["read", "write", "readv", "pread64", "pwrite64", "preadv", "preadv2", "pwritev2"]
                    )
                )
                place = draw(st.integers(-1 if call.endswith("v2") else 0, 10**9))
                program.move(pid, number, call, draw(st.integers(-1, 10**6)), place)
            elif kind == "seek":
                file.position = draw(st.integers(0, 10**9))
                program.calls.append(
                    (pid, f"lseek({program.fd(number, file)}, 5, SEEK_CUR) = {file.position}")
                )
            elif kind == "dup":
                new = max(table) + 1
                table[new] = file
                shown = program.fd(new, file)
                program.calls.append((pid, f"dup({program.fd(number, file)}) = {shown}"))
            else:
                del table[number]
                program.calls.append((pid, f"close({program.fd(number, file)}) = 0"))
    return program


@st.composite
def logs(draw: st.DrawFn) -> tuple[Program, list[str]]:
    """A program and its log: form of the lines, and calls in two parts."""
    program = draw(programs())
    head = draw(
        st.sampled_from(
            ["{pid} {t} ", "{pid:<5} {t} ", "[pid {pid:>5}] {t} ", "{pid}<app> {t} ", "{pid} {t} [   0] "]
        )
    )
    has_duration, digits = draw(st.booleans()), draw(st.sampled_from([6, 9]))
    lines = []
    for i, (pid, call) in enumerate(program.calls):
        times = [head.format(pid=pid, t=f"{START + i}.{part:0{digits}d}") for part in (1, 2000)]
        lasting = " <0.000100>" if has_duration else ""
        name, _, rest = call.partition("(")
        if draw(st.booleans()) and ", " in rest and name not in ("clone", "openat"):
            first, _, behind = rest.partition(", ")
            lines.append(f"{times[0]}{name}({first},  <unfinished ...>")
            lines.append(f"{times[1]}<... {name} resumed>{behind}{lasting}")
        else:
            lines.append(f"{times[0]}{call}{lasting}")
    return program, lines


@given(logs())
def test_bytes_and_positions_are_those_of_the_program(generated: tuple[Program, list[str]]) -> None:
    program, lines = generated
    pids = {pid for pid, _ in program.calls}
    parser = StraceParser("n")
    moves = [record for line in lines for record in parser.parse(line)]
    data = [record for record in moves if record.operation in ("read", "write")]
    assert [(r.operation, r.offset, r.size, r.path) for r in data] == program.truth
    assert all(r.end_ns is None or r.end_ns >= r.time_ns for r in data)
    assert parser.lost == 0
    assert parser.in_flight() == []
    beside = StraceParser("n", traced=pids)
    seen = [r for line in lines for r in beside.parse(line) if r.operation in ("read", "write")]
    for ours, theirs in zip(data, seen, strict=True):
        assert theirs.offset in (ours.offset, None)


@given(logs(), st.data())
def test_a_log_without_some_processes_gives_no_wrong_position(
    generated: tuple[Program, list[str]], data: st.DataObject
) -> None:
    program, _ = generated
    gone = data.draw(st.sets(st.sampled_from(sorted(set(program.tables) - {100}) or [100])))
    kept = [(pid, call) for pid, call in program.calls if pid not in gone - {100}]
    parser = StraceParser("n", traced={pid for pid, _ in kept})
    known = {(operation, at, moved) for operation, at, moved, _ in program.truth}
    for i, (pid, call) in enumerate(kept):
        if call.startswith("pwrite"):  # as given: the trace may not have the open, with O_APPEND
            continue
        for record in parser.parse(f"{pid} {START + i}.000001 {call}"):
            if record.operation in ("read", "write") and record.offset is not None:
                assert (record.operation, record.offset, record.size) in known
