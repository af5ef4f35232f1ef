"""strace: a real trace of a known program, and the lines that it does not have."""

import pytest

from laggard_agent.tools.iotrace.fold import fold
from laggard_common.trace_formats.descriptors import MAX_DESCRIPTORS, MAX_PROCESSES, ProcessTables
from laggard_common.trace_formats.strace import StraceParser
from tests.support.builders.iotrace import read, sample

Move = tuple[str, str, int | None, int]


def moves(text: str, *, bad: int = 0) -> list[Move]:
    """The records of these lines, without their times."""
    records, reader = read(
        "strace", "".join(line.strip() + "\n" for line in text.strip().splitlines()).encode()
    )
    assert reader.not_understood == bad
    return [(r.operation, r.descriptor, r.offset, r.size) for r in records]


def test_the_traced_program() -> None:
    """What calls.py did, in the order of the ends of runs of one descriptor after the other."""
    records, reader = read("strace", sample("strace"))
    assert (reader.not_understood, reader.torn) == (0, 0)
    main, child = records[0].descriptor.partition(":")[0], ""
    (child,) = {r.descriptor.partition(":")[0] for r in records} - {main}
    runs = [(f.operation, f.descriptor, f.path, f.offset, f.size, f.count) for f in fold(records)]
    a = [run for run in runs if run[2] == "a.dat"]
    assert [run for run in a if run[1] == f"{main}:3"] == [
        ("open", f"{main}:3", "a.dat", None, 0, 1),
        ("write", f"{main}:3", "a.dat", 0, 4096, 8),
        ("fsync", f"{main}:3", "a.dat", None, 0, 1),
        ("read", f"{main}:3", "a.dat", 0, 4096, 4),
        *(("read", f"{main}:3", "a.dat", i * 8192, 512, 1) for i in range(4)),
        ("write", f"{main}:3", "a.dat", 32768, 512, 4),
        ("read", f"{main}:3", "a.dat", 28672, 4096, 1),
        ("read", f"{main}:3", "a.dat", 0, 8192, 2),
        ("close", f"{main}:3", "a.dat", None, 0, 1),
    ]
    assert ("read", f"{main}:4", "a.dat", 16384, 4096, 2) in a
    assert [run for run in a if run[1].startswith(f"{child}:")] == [
        ("read", f"{child}:3", "a.dat", 24576, 4096, 1)
    ]
    assert ("write", f"{main}:7", "log", None, 5, 3) in runs  # by a thread, to the process's descriptor
    b = [run[0:1] + run[3:] for run in runs if run[2] == "b.dat"]
    assert b == [("open", None, 0, 1), ("write", 0, 8192, 2), ("truncate", 100, 0, 1), ("close", None, 0, 1)]
    assert ("write", f"{child}:6", "", None, 4, 1) in runs


def test_calls_that_end_later_count_from_their_begin() -> None:
    text = b"""7 100.000001 read(0,  <unfinished ...>
8 100.000002 read(4,  <unfinished ...>
7 100.000003 <... read resumed>"ab) = 9", 16) = 2
8 100.000004 <... read resumed> "", 16) = 0
9 100.000005 <... read resumed>"abc", 16) = 3
"""
    records, reader = read("strace", text)
    assert [(r.descriptor, r.size, r.time_ns) for r in records] == [
        ("7:0", 2, 100_000_001_000),
        ("8:4", 0, 100_000_002_000),
    ]
    assert reader.not_understood == 0


def test_without_a_file_processes_are_named_late() -> None:
    text = """
        100.1 openat(AT_FDCWD, "/f", O_RDONLY) = 3
        100.2 clone(child_stack=NULL, flags=SIGCHLD) = 12
        strace: Process 12 attached
        [pid    12] 100.3 read(3, "abc", 100) = 3
        [pid    11] 100.4 read(3, "def", 100) = 3
        [pid    12] 100.5 +++ exited with 0 +++
        100.6 close(3) = 0
    """
    assert moves(text) == [
        ("open", "0:3", None, 0),
        ("read", "12:3", 0, 3),
        ("read", "0:3", 3, 3),
        ("close", "0:3", None, 0),
    ]


def test_a_child_may_come_before_its_parents_call_returns() -> None:
    text = """
        1 100.1 open("/f", O_RDONLY) = 3
        1 100.2 clone3({flags=CLONE_VM|CLONE_VFORK, exit_signal=SIGCHLD} <unfinished ...>
        2 100.3 read(3, "abc", 3) = 3
        1 100.4 <... clone3 resumed> => {parent_tid=[2]}, 88) = 2
        1 100.5 read(3, "abc", 3) = 3
    """
    assert moves(text)[1:] == [("read", "2:3", 0, 3), ("read", "1:3", 3, 3)]


def test_threads_share_descriptors_and_forks_share_open_files() -> None:
    text = """
        1 100.1 open("/f", O_RDONLY) = 3
        1 100.2 clone(child_stack=0x1, flags=CLONE_VM|CLONE_FILES|CLONE_THREAD) = 2
        1 100.3 fork() = 3
        2 100.4 close(3) = 0
        2 100.5 open("/g", O_RDONLY) = 3
        1 100.6 pread64(3, "x", 1, 70) = 1
        3 100.7 lseek(3, 10, SEEK_SET) = 10
        3 100.8 read(3, "x", 1) = 1
        3 100.9 read(9, "x", 1) = 1
    """
    assert moves(text)[1:] == [
        ("close", "1:3", None, 0),
        ("open", "1:3", None, 0),
        ("read", "1:3", 70, 1),
        ("read", "3:3", 10, 1),
        ("read", "3:9", None, 1),
    ]


def test_a_process_from_nowhere_has_no_known_offsets_until_it_seeks() -> None:
    text = """
        1 100.1 open("/f", O_RDONLY) = 3
        2 100.2 read(3, "x", 1) = 1
        2 100.3 lseek(3, 0, SEEK_CUR) = 5
        2 100.4 read(3, "x", 1) = 1
    """
    assert moves(text)[1:] == [("read", "2:3", None, 1), ("read", "2:3", 5, 1)]


def test_append_exec_and_descriptors_that_are_used_again() -> None:
    text = """
        1 100.01 openat(AT_FDCWD, "/log", O_WRONLY|O_CREAT|O_APPEND, 0644) = 3
        1 100.02 write(3, "ab", 2) = 2
        1 100.03 pwrite64(3, "ab", 2, 0) = 2
        1 100.04 fcntl(3, F_SETFL, O_WRONLY) = 0
        1 100.05 write(3, "ab", 2) = 2
        1 100.06 lseek(3, 0, SEEK_END) = 6
        1 100.07 writev(3, [{iov_base="a", iov_len=1}, {iov_base="b", iov_len=1}], 2) = 2
        1 100.08 openat2(AT_FDCWD, "/g", {flags=O_RDONLY|O_CLOEXEC, resolve=0}, 24) = 4
        1 100.09 dup2(3, 5) = 5
        1 100.10 execve("/bin/x", ["x"], 0x7ffc /* 3 vars */) = 0
        1 100.11 read(4, "a", 1) = 1
        1 100.12 write(5, "a", 1) = 1
        1 100.13 close_range(4, 4294967295, 0) = 0
    """
    assert moves(text) == [
        ("open", "1:3", None, 0),
        ("write", "1:3", None, 2),
        ("write", "1:3", None, 2),
        ("write", "1:3", None, 2),
        ("write", "1:3", 6, 2),
        ("open", "1:4", None, 0),
        ("read", "1:4", None, 1),
        ("write", "1:5", 8, 1),
        ("close", "1:5", None, 0),
        ("close", "1:4", None, 0),
    ]


def test_vectors_with_offsets_copies_and_old_names() -> None:
    text = """
        1 100.1 creat("/f", 0644) = 3
        1 100.2 preadv(3, [{iov_base="a, b", iov_len=4}], 1, 4096) = 4
        1 100.3 preadv2(3, [{iov_base="a", iov_len=1}], 1, -1, RWF_NOWAIT) = 1
        1 100.4 _llseek(3, 0, [4294967296], SEEK_END) = 0
        1 100.5 read(3, "", 10) = 0
        1 100.6 copy_file_range(3, [0] => [7], 4, [50], 7, 0) = 7
        1 100.7 sendfile64(4, 3, [8] => [10], 2) = 2
        1 100.8 getdents64(3, 0x5 /* 2 entries */, 32768) = 48
        1 100.9 newfstatat(AT_FDCWD, "/etc", {st_mode=S_IFDIR}, 0) = 0
        1 101.0 newfstatat(3, "", {st_mode=S_IFDIR}, AT_EMPTY_PATH) = 0
        1 101.1 ioctl(3, TCGETS, 0x7ffc) = -1 ENOTTY (Inappropriate ioctl for device)
    """
    assert moves(text)[1:] == [
        ("read", "1:3", 4096, 4),
        ("read", "1:3", 0, 1),
        ("read", "1:3", 4294967296, 0),
        ("read", "1:3", 0, 7),
        ("write", "1:4", 50, 7),
        ("read", "1:3", 8, 2),
        ("write", "1:4", None, 2),
        ("readdir", "1:3", None, 48),
        ("stat", "1:3", None, 0),
    ]


def test_paths_as_strace_y_writes_them() -> None:
    text = b'1 100.1 read(3</data/a b>, "x", 1) = 1\n'
    text += b'1 100.2 openat(AT_FDCWD</data>, "c", O_RDONLY) = 4</data/c>\n'
    text += b'1 100.3 read(5<pipe:[77]>, "x", 1) = 1 <0.000012>\n'
    records, reader = read("strace", text)
    assert [r.path for r in records] == ["/data/a b", "/data/c", ""]
    assert reader.not_understood == 0


@pytest.mark.parametrize(
    "line",
    [
        "1 100.1 read(3, 4) = 4 = ",
        "1 100.1 read(3",
        "1 100.1 read = 4",
        '1 100.1 read(-3, "", 1) = 1',
        "1 100.1 lseek(x, 0, SEEK_SET) = 0",
        "1 100.1 read(3, 0x1, 99999999999999999999) = 99999999999999999999",
        "1 9999999999.5 close(3) = 0",
        '1 100.1 pread64(3, "", 1, -7) = 1',
        '1 100.1 pread64(3, "", 1, 9223372036854775807) = 1',
        "1 100.1 pipe([3, x]) = 0",
        "1 100.1 open(0x7ffc, O_RDONLY) = 3",
        "10:23:45 read(3, 4) = 4",
        "1 <unfinished ...>",
        "1 100.1 = <unfinished ...>",
    ],
)
def test_lines_that_are_not_understood(line: str) -> None:
    records, reader = read("strace", f"{line}\n".encode())
    if line == "1 100.1 read(3, 4) = 4 = ":  # what comes behind a result is strace's own remark
        assert [r.size for r in records] == [4]
        return
    assert (records, reader.not_understood) == ([], 1)


def test_signals_ends_and_failures_are_understood() -> None:
    text = """
        1 100.1 --- SIGCHLD {si_signo=SIGCHLD} ---
        1 100.2 read(3, 0x7ffc, 1) = -1 EAGAIN (Resource temporarily unavailable)
        1 100.3 read(3,  <unfinished ...>) = ?
        1 100.4 exit_group(0) = ?
        1 100.5 +++ killed by SIGKILL (core dumped) +++
        1 100.6 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 3, 0) = 0x7f0000000000
        strace: Process 2 detached
    """
    assert moves(text) == []


def test_memory_is_bounded() -> None:
    processes = ProcessTables()
    for pid in range(1, MAX_PROCESSES + 100):
        processes.table(pid)
    assert len(processes._tables) == MAX_PROCESSES
    parser = StraceParser("cn-17")
    for fd in range(MAX_DESCRIPTORS + 100):
        assert parser.parse(f'1 100.1 open("/f", O_RDONLY) = {fd}')
    assert len(parser._processes.table(1).files) == MAX_DESCRIPTORS
    for pid in range(MAX_PROCESSES + 100):
        parser.parse(f"{pid} 100.1 read(0,  <unfinished ...>")
    assert len(parser._begun) == MAX_PROCESSES
