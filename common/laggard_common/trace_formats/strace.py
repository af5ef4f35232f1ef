"""Parses the output of `strace -ttt -f -e trace=desc`: lines of many processes become calls.

    12409 1795249408.775433 read(0, "\\0\\0"..., 4096) = 4096
    12416 1795249408.826627 write(1, "\\0\\0"..., 16384 <unfinished ...>
    12416 1795249408.826668 <... write resumed>) = 16384
    12416 1795249408.827018 +++ exited with 0 +++

With or without `-o FILE`, `-ff`, `-y`, `-yy`, `-Y`, `-T`, `-i`, `-n`, `-k`. The effects of calls are in
`calls`.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Collection, Sequence

from laggard_common.trace_formats.calls import CALLS, CLONES, HIDING, MOVING, Call, has_flag
from laggard_common.trace_formats.descriptors import MAX_PROCESSES, DescriptorTable, ProcessTables
from laggard_common.trace_formats.line_reader import time_ns
from laggard_common.wire.trace_records import TraceRecord

_PROCESS = r"(?:\[pid +([0-9]{1,10})(?:<[^>]{0,64}>)?\] |([0-9]{1,10})(?:<[^>]{0,64}>)? )?"
_BRACKETS = r"(?:\(\+ *[0-9.]{1,21}\) )?(?:\[ *[0-9a-f?]{1,16}\] )*"  # -r beside -ttt; -i and -n
_HEAD = re.compile(_PROCESS + r"( *)([0-9]{1,10})(\.[0-9]{1,9}) +" + _BRACKETS + r"(\S.*)", re.DOTALL)
_CALL = re.compile(r"([a-z_][a-z0-9_]*)\((.*)\) *= (-?[0-9]{1,20}|0x[0-9a-f]{1,16}|\?)(.*)", re.DOTALL)
_RESUMED = re.compile(r"<\.\.\. ([a-z_][a-z0-9_]*) resumed>")
_DURATION = re.compile(r" <([0-9]{1,10}\.[0-9]{1,9})>\s*$")
_UNFINISHED = (" <unfinished ...>", " <detached ...>")
_OF_STRACE = ("strace: ", "Process ", "[ Process ", " > ")  # the last: a line of a stack, with -k
_CALL_HEAD = r"(?:[a-z_][a-z0-9_]*\(|<\.\.\. |---|\+\+\+)"
_OF_DAY = re.compile(_PROCESS + r" *[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})? +" + _BRACKETS + _CALL_HEAD)
_WHOLE_SECONDS = re.compile(_PROCESS + r" *[0-9]{9,10} +" + _BRACKETS + _CALL_HEAD)
_WITHOUT_TIME = re.compile(_PROCESS + r" *[a-z_][a-z0-9_]*\(.*(?:\) *= (?:-?[0-9]|0x|\?)|<unfinished)")
_LIKE_STRACE = re.compile(_PROCESS + r" *[0-9]{1,10}\.[0-9]{1,9} +" + _BRACKETS + _CALL_HEAD)
_MOST_KEPT_CHARS = 8192  # of an unfinished call
_MOST_RELATIVE_SECONDS = 100
_FIRST_PLAUSIBLE_SECONDS = 10**8
OPTIONS = "strace -f -ttt -T -y"


def is_strace(first: bytes) -> bool:
    """Whether one of the first lines is of strace, with whatever times."""
    return any(
        pattern.match(line)
        for line in _lines(first)
        for pattern in (_LIKE_STRACE, _OF_DAY, _WHOLE_SECONDS, _WITHOUT_TIME)
    )


def time_fault(first: bytes) -> str | None:
    """The reason why the times of a log that begins so cannot be read, with advice; None where they can."""
    for line in _lines(first):
        if (match := _HEAD.fullmatch(line)) is not None:
            if _is_relative(match):
                return f"has times since the line before (strace -r): record with {OPTIONS}"
            return None
        if _OF_DAY.match(line):
            return f"has times of day without a date (strace -t or -tt): record with {OPTIONS}"
        if _WHOLE_SECONDS.match(line):
            return f"has times of whole seconds (strace --absolute-timestamps=unix): record with {OPTIONS}"
        if _WITHOUT_TIME.match(line):
            return f"is a log of strace without times: record with {OPTIONS}"
    return None


def _lines(first: bytes) -> list[str]:
    return first.decode("utf-8", "backslashreplace").splitlines()[:200]


def _is_relative(head: re.Match[str]) -> bool:
    """Whether a line's time is one of -r: small, or small and right-aligned."""
    seconds = int(head[4])
    return seconds < _MOST_RELATIVE_SECONDS or (seconds < _FIRST_PLAUSIBLE_SECONDS and head[3] != "")


class StraceParser:
    """Parses lines of strace. `node`: node name of the records, which strace lacks.

    A descriptor is `process:fd`, with the process that owns the descriptor table. `size` is the return value:
    the bytes moved. Failed calls and calls without a descriptor make no record.

    `pid`: process of lines that name none, as in the files of -ff. `traced`: processes that the log has; with
    any other one that a process of the log starts, positions of the files that they share are unknown. None:
    all are in the log.
    """

    def __init__(self, node: str, *, pid: int = 0, traced: Collection[int] | None = None) -> None:
        self._node = node
        self._pid = pid
        self._traced = traced
        self._processes = ProcessTables()
        self._begun: OrderedDict[int, tuple[int, str]] = OrderedDict()  # time and head of unfinished calls
        self.calls = 0
        """Calls that ended, also those that failed."""
        self.lost = 0
        """Calls whose begin or end must be in the log, and is not."""
        self.hiding: Counter[str] = Counter()
        """Names of calls that move data and do not say how much."""
        self.untraced = 0
        """Processes and threads that were started, and are not in the log."""

    def parse(self, line: str) -> Sequence[TraceRecord]:
        """The records of the call that ends in this line. Raises ValueError for a line of another format."""
        if not line.strip() or line.startswith(_OF_STRACE):
            return ()
        match = _HEAD.fullmatch(line)
        if match is None or _is_relative(match):
            raise ValueError(line)
        at_ns = time_ns(match[4] + match[5])
        pid, text = int(match[1] or match[2] or self._pid), match[6]
        if text.startswith(("---", "strace: ")):
            return ()
        if text.startswith("+++"):
            self._begun.pop(pid, None)
            self._processes.gone(pid)
            return ()
        end_ns = None
        if resumed := _RESUMED.match(text):
            end_ns = at_ns
            at_ns, head = self._begun.pop(pid, (0, ""))
            if not head.startswith(resumed[1] + "("):
                self.lost += self._processes.has(pid)
                self._processes.table(pid)
                return ()  # it started before the trace
            text = head + text[resumed.end() :]
        if text.endswith(_UNFINISHED):
            self._unfinished(pid, at_ns, text[: text.rindex(" <")])
            return ()
        return self._call(pid, at_ns, end_ns, text)

    def remarks(self) -> Sequence[str]:
        """Sentences about calls that are missing, or that tell less than they could."""
        remarks = []
        if self.lost:
            remarks.append(f"{self.lost} entries or returns of system calls are missing")
        if self.hiding:
            calls = ", ".join(f"{count} of {name}" for name, count in sorted(self.hiding.items()))
            remarks.append(f"{calls}: strace does not show the data that these calls move")
        if self.untraced:
            remarks.append(
                f"{self.untraced} processes or threads are not in the trace, so positions of the files that "
                "they share are unknown: record with -f into one file, or join the files of -ff with "
                "strace-log-merge"
            )
        return remarks

    def in_flight(self) -> list[TraceRecord]:
        """Reads and writes that have not ended, with size 0 and without offset."""
        records = []
        for pid, (at_ns, head) in self._begun.items():
            name, _, arguments = head.partition("(")
            fd = re.match(r"([0-9]{1,9})(?=[<,])", arguments)
            if name in MOVING and fd is not None:
                table = self._processes.table(pid)
                call = Call(
                    fd[0] + arguments[fd.end() :].partition(", ")[0], 0, "", self._node, at_ns, None, pid
                )
                path = table.get(int(fd[1])).path or call.shown_path
                records.append(call.record(table.name, MOVING[name], int(fd[1]), path))
        return records

    def _unfinished(self, pid: int, at_ns: int, head: str) -> None:
        name, bracket, arguments = head.partition("(")
        if not bracket or len(head) > _MOST_KEPT_CHARS:
            raise ValueError(head)
        self._processes.table(pid)
        if name in CLONES:
            self._processes.clone_begins(pid, shared=has_flag(_clone_flags(arguments), "CLONE_FILES"))
        if len(self._begun) >= MAX_PROCESSES:
            self._begun.popitem(last=False)
        self.lost += pid in self._begun
        self._begun[pid] = at_ns, head

    def _call(self, pid: int, at_ns: int, end_ns: int | None, text: str) -> Sequence[TraceRecord]:
        match = _CALL.fullmatch(text)
        if match is None:
            raise ValueError(text)
        self.calls += 1
        self.lost += self._begun.pop(pid, None) is not None
        name, arguments, result, note = match.groups()
        table = self._processes.table(pid)
        ok = result[0] not in "-?"
        if name in CLONES:
            if ok and int(result, 0):
                self._cloned(pid, int(result, 0), name, arguments)
            else:
                self._processes.clone_failed(pid)
            return ()
        if not ok or name not in CALLS:
            if ok and name in HIDING:
                self.hiding[name] += 1
            return ()
        if lasted := _DURATION.search(note):
            end_ns = at_ns + time_ns(lasted[1])
        return CALLS[name](table, Call(arguments, int(result, 0), note, self._node, at_ns, end_ns, pid))

    def _cloned(self, pid: int, child: int, name: str, arguments: str) -> None:
        flags = _clone_flags(arguments)
        is_thread = has_flag(flags, "CLONE_FILES")
        if self._traced is None or child in self._traced:
            self._processes.cloned(pid, child, shared=is_thread)
            return
        self.untraced += 1
        self._processes.clone_failed(pid)  # no line will be of the child
        table = self._processes.table(pid)
        if is_thread:
            table.share()
        else:
            _share_files(table, replaced=name == "vfork" or has_flag(flags, "CLONE_VFORK"))


def _clone_flags(arguments: str) -> str:
    return arguments.partition("flags=")[2].partition(",")[0]


def _share_files(table: DescriptorTable, *, replaced: bool) -> None:
    """Notes a child that the trace does not have. `replaced`: by another program, before it does anything."""
    for fd, file in table.files.items():
        if not (replaced and fd in table.close_on_exec):
            file.share()
