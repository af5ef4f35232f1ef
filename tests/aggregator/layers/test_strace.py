"""Logs of strace as they are recorded in the field: options, forms of lines, calls beyond read and write."""

from pathlib import Path

import pytest

from laggard_aggregator.cli.main import main
from tests.aggregator.layers.analysed import Analysed, analysed

T = 1_700_000_000


def log(*calls: str, step: float = 0.01) -> str:
    """The calls as lines of process 77, one after another."""
    return "".join(f"77 {T + i * step:.6f} {call} <0.000100>\n" for i, call in enumerate(calls))


def of(path: Path, text: str, name: str = "t.strace") -> Analysed:
    """The report of a log."""
    (path / name).write_text(text)
    return analysed(path / name)


OPEN = 'openat(AT_FDCWD, "/d/a", O_RDWR) = 3</d/a>'


def test_flags_of_vectored_calls_are_no_offsets(tmp_path: Path) -> None:
    calls = [f"pwritev2(3</d/a>, [{{iov_len=512}}], 1, {i * 512}, RWF_DSYNC) = 512" for i in range(8)]
    calls += ["preadv2(3</d/a>, [{iov_len=512}], 1, -1, 0) = 512" for _ in range(8)]
    found = of(tmp_path, log(OPEN, *calls)).layer("syscall")
    assert (found["requests"], found["runs"], found["streams"]) == (16, 2, 1)
    assert found["mean_run_bytes"] == 4096


def test_appends_have_no_known_position(tmp_path: Path) -> None:
    opened = 'openat(AT_FDCWD, "/d/a", O_WRONLY|O_APPEND) = 3</d/a>'
    calls = ['write(3</d/a>, "x", 100) = 100', 'pwrite64(3</d/a>, "x", 100, 0) = 100', "close(3</d/a>) = 0"]
    found = of(tmp_path, log(opened, *calls, opened, *calls))
    assert found.layer("syscall")["streams"] == 0
    assert "4 reads and writes have no known file position" in found.remarks


def test_a_file_switched_to_append(tmp_path: Path) -> None:
    calls = ['write(3</d/a>, "x", 100) = 100', "fcntl(3</d/a>, F_SETFL, O_RDWR|O_APPEND) = 0"]
    found = of(tmp_path, log(OPEN, *calls, 'write(3</d/a>, "x", 100) = 100'))
    assert "1 reads and writes have no known file position" in found.remarks


SWITCH = "fcntl(3</d/a>, 0x4 /* F_SETFL */, "  # of strace -X verbose


@pytest.mark.parametrize(
    ("calls", "known"),
    [
        (['openat(-100, "/d/a", 0x441, 0644) = 3</d/a>', 'write(3</d/a>, "x", 100) = 100'], 0),
        (['openat(-100, "/d/a", 0x42, 0644) = 3</d/a>', 'write(3</d/a>, "x", 100) = 100'], 1),
        (['openat2(-100, "/d/a", {flags=0x441, mode=0}, 24) = 3</d/a>', 'write(3</d/a>, "x", 9) = 9'], 0),
        ([OPEN, "fcntl(3</d/a>, 0x4, 0x402) = 0", 'write(3</d/a>, "x", 100) = 100'], 0),
        ([OPEN, f"{SWITCH}0x402 /* O_RDWR|O_APPEND */) = 0", 'write(3</d/a>, "x", 100) = 100'], 0),
        ([OPEN, "fcntl(3</d/a>, 0x406, 10) = 10</d/a>", 'write(10</d/a>, "x", 100) = 100'], 1),
        (
            [OPEN, "fcntl(3</d/a>, 0 /* F_DUPFD */, 10) = 10</d/a>", 'write(10</d/a>, "x", 100) = 100'],
            1,
        ),
        ([OPEN, 'pwritev2(3</d/a>, [{"x", 100}], 1, 0, 0x10) = 100'], 0),
        ([OPEN, 'pwritev2(3</d/a>, [{"x", 100}], 1, 0, 0x2) = 100'], 1),
    ],
)
def test_flags_printed_as_numbers(tmp_path: Path, calls: list[str], known: int) -> None:
    assert of(tmp_path, log(*calls)).layer("syscall")["streams"] == known


@pytest.mark.parametrize("flags", ["CLONE_VM|CLONE_FILES|CLONE_THREAD", "SIGCHLD", "0x3d0f00"])
def test_threads_and_children_move_one_position(tmp_path: Path, flags: str) -> None:
    lines = [f"100 {T}.000000 {OPEN} <0.000010>", f"100 {T}.001000 clone(flags={flags}) = 101 <0.000010>"]
    lines += [f'10{i % 2} {T}.0{i + 10}000 read(3</d/a>, "", 512) = 512 <0.000010>' for i in range(8)]
    found = of(tmp_path, "\n".join(lines) + "\n").layer("syscall")
    assert (found["runs"], found["mean_run_bytes"], found["streams"]) == (1, 4096, 1)


@pytest.mark.parametrize(
    ("start", "known"),
    [
        ("clone3({flags=CLONE_VM|CLONE_FILES|CLONE_THREAD}, 88) = 101", 0),
        ("clone(child_stack=NULL, flags=SIGCHLD) = 101", 0),
        ("vfork() = 101", 0),
        ("clone3({flags=CLONE_VM|CLONE_FILES|CLONE_THREAD}, 88) = -1 EAGAIN (x)", 1),
    ],
)
def test_positions_are_unknown_beside_processes_that_are_not_traced(
    tmp_path: Path, start: str, known: int
) -> None:
    found = of(tmp_path, log(OPEN, start, 'read(3</d/a>, "", 512) = 512', 'read(3</d/a>, "", 512) = 512'))
    assert found.layer("syscall")["streams"] == known
    assert ("are not in the trace" in found.remarks) == (not known)


def test_a_child_that_runs_another_program_does_not_move_files_closed_by_it(tmp_path: Path) -> None:
    opened = 'openat(AT_FDCWD, "/d/a", O_RDONLY|O_CLOEXEC) = 3</d/a>'
    found = of(tmp_path, log(opened, "vfork() = 101", 'read(3</d/a>, "", 512) = 512'))
    assert found.layer("syscall")["streams"] == 1


@pytest.mark.parametrize(
    "call",
    [
        "copy_file_range(3</d/a>, NULL, 4</d/b>, NULL, 65536, 0) = 4096",
        "copy_file_range(3</d/a>, [0], 4</d/b>, [0], 65536, 0) = 4096",
        "sendfile(4</d/b>, 3</d/a>, NULL, 65536) = 4096",
        "sendfile(4</d/b>, 3</d/a>, [0] => [4096], 65536) = 4096",
        "splice(3</d/a>, NULL, 4</d/b>, NULL, 65536, SPLICE_F_MOVE) = 4096",
    ],
)
def test_copies_in_the_kernel_are_a_read_and_a_write(tmp_path: Path, call: str) -> None:
    found = of(tmp_path, log(OPEN, 'creat("/d/b", 0644) = 4</d/b>', call)).layer("syscall")
    assert (found["requests"], found["completed_bytes"], found["bytes"]) == (2, 8192, 131072)


def test_what_is_spliced_from_a_pipe_is_a_write(tmp_path: Path) -> None:
    call = "splice(5<pipe:[17]>, NULL, 3</d/a>, NULL, 65536, 0) = 4096"
    assert of(tmp_path, log(OPEN, call)).layer("syscall")["completed_bytes"] == 4096


def test_calls_that_hide_their_data_are_named(tmp_path: Path) -> None:
    ring = "io_uring_enter(4<anon_inode:[io_uring]>, 8, 8, IORING_ENTER_GETEVENTS, NULL, 8) = 8"
    found = of(tmp_path, log(OPEN, ring, ring, "io_submit(0x7f, 1, [{...}]) = 1", 'read(3</d/a>, "", 5) = 5'))
    assert "1 of io_submit, 2 of io_uring_enter: strace does not show the data" in found.remarks


def test_failed_calls_move_nothing(tmp_path: Path) -> None:
    calls = [
        "read(3</d/a>, 0x55, 512) = -1 EIO (Input/output error)",
        "read(3</d/a>, 0x5, 9) = ? ERESTARTSYS (x)",
    ]
    found = of(tmp_path, log(OPEN, *calls, 'read(3</d/a>, "", 512) = 512')).layer("syscall")
    assert (found["requests"], found["completed_bytes"]) == (1, 512)


FORMS = [
    ("-f, no -o", "[pid  4242] {t} {call}"),
    ("-o", "4242  {t} {call}"),
    ("-o, short pid", "42    {t} {call}"),
    ("-Y", "4242<dd> {t} {call}"),
    ("-Y, no -o", "[pid  4242<dd>] {t} {call}"),
    ("-r beside -ttt", "4242  {t} (+     0.000300) {call}"),
    ("-n", "4242  {t} [   0] {call}"),
    ("-i", "4242  {t} [00007f1c2d3e4f50] {call}"),
    ("one process", "{t} {call}"),
]


@pytest.mark.parametrize("form", [form for _, form in FORMS], ids=[name for name, _ in FORMS])
def test_forms_of_lines(tmp_path: Path, form: str) -> None:
    calls = [OPEN, *['read(3</d/a>, "a) = 7", 4096) = 4096'] * 8]
    lines = [form.format(t=f"{T}.0{i + 10}000", call=f"{call} <0.000100>") for i, call in enumerate(calls)]
    stack = " > /usr/lib/x86_64-linux-gnu/libc.so.6(__read+0x14) [0x10e1f4]\n"
    found = of(tmp_path, "".join(line + "\n" + stack for line in lines))
    assert found.layer("syscall")["mean_run_bytes"] == 32768
    assert "not understood" not in found.remarks


@pytest.mark.parametrize("shown", ["3</d/a>", "3</d/a>(deleted)", "3</d/a<block 8:0>>", "3</d/a (deleted)>"])
def test_ways_to_show_a_file(tmp_path: Path, shown: str) -> None:
    text = log(*[f'read({shown}, "", 4096) = 4096', 'read(4<TCP:[1.2.3.4:5->1.2.3.4:6]>, "", 9) = 9'] * 2)
    found = of(tmp_path, text).layer("syscall")
    assert (found["requests"], found["completed_bytes"]) == (2, 8192)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('4242      0.000300 read(3</d/a>, "", 512) = 512 <0.000400>', "strace -r"),
        ('     0.000300 read(3</d/a>, "", 512) = 512', "strace -r"),
        ('[pid  4242]      0.000300 read(3</d/a>, "", 512) = 512', "strace -r"),
        ('77      120.000300 read(3</d/a>, "", 512) = 512', "strace -r"),
        ('4242 0.000300 read(3</d/a>, "", 512) = 512', "strace -r"),
        ('4242 10:00:01.123456 read(3</d/a>, "", 512) = 512', "strace -t or -tt"),
        ('[pid  4242] 10:00:01 read(3</d/a>, "", 512) = 512', "strace -t or -tt"),
        ('read(3</d/a>, "", 512)        = 512', "without times"),
        ('[pid  4242] read(3</d/a>, "", 512) = 512', "without times"),
        ('77 1700000000 read(3</d/a>, "", 512) = 512', "whole seconds"),
        ('1700000000 read(3</d/a>, "", 512) = 512', "whole seconds"),
    ],
)
def test_times_that_cannot_be_read_are_refused(
    tmp_path: Path, line: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.strace"
    path.write_text(f"{line}\n" * 5)
    assert main(["layers", str(path)]) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert "-ttt" in said


def test_files_of_ff_are_processes(tmp_path: Path) -> None:
    for pid in (501, 502):
        calls = [OPEN, *['read(3</d/a>, "", 512) = 512'] * 4]
        (tmp_path / f"out.{pid}").write_text(
            "".join(f"{T}.{pid}{i}00 {call} <0.000010>\n" for i, call in enumerate(calls))
        )
    found = analysed(tmp_path).layer("syscall")
    assert (found["requests"], found["runs"], found["mean_run_bytes"]) == (8, 2, 2048)


def test_torn_and_odd_lines_are_told(tmp_path: Path) -> None:
    text = log(OPEN, 'read(3</d/a>, "", 512) = 512', "strange", 'read(3</d/a>, "", 512) = 512')
    found = of(tmp_path, text + f'77 {T}.900000 read(3</d/a>, "", 4096) = 40')
    assert found.layer("syscall")["completed_bytes"] == 1024
    assert "1 of 5 lines were not understood" in found.remarks
    assert "the last line has no end" in found.remarks
