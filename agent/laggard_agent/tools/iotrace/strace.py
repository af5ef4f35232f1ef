"""Parses the output of `strace -ttt -f -e trace=desc`: lines of many processes become calls.

    12409 1795249408.775433 read(0, "\\0\\0"..., 4096) = 4096
    12416 1795249408.826627 write(1, "\\0\\0"..., 16384 <unfinished ...>
    12416 1795249408.826668 <... write resumed>) = 16384
    12416 1795249408.827018 +++ exited with 0 +++

With or without `-o FILE`, `-y`, `-yy`, `-T`. The effects of calls are in `calls`.
"""

import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from laggard_agent.tools.iotrace.calls import CALLS, CLONES, Call
from laggard_agent.tools.iotrace.descriptors import MAX_PROCESSES, ProcessTables
from laggard_agent.tools.iotrace.reader import is_possible, time_ns
from laggard_common.wire.trace_records import TraceRecord

_HEAD = re.compile(
    r"(?:\[pid +([0-9]{1,10})\] +|([0-9]{1,10}) +)?([0-9]{1,10}\.[0-9]{1,9}) +(\S.*)", re.DOTALL
)
_CALL = re.compile(r"([a-z_][a-z0-9_]*)\((.*)\) *= (-?[0-9]{1,20}|0x[0-9a-f]{1,16}|\?)(.*)", re.DOTALL)
_RESUMED = re.compile(r"<\.\.\. ([a-z_][a-z0-9_]*) resumed>")
_UNFINISHED = " <unfinished ...>"
_OF_STRACE = ("strace: ", "Process ")
_MOST_KEPT_CHARS = 8192  # of an unfinished call


@dataclass(frozen=True, slots=True)
class _Begun:
    at_ns: int
    head: str


class StraceParser:
    """Parses lines of strace. `node`: node name of the records, which strace lacks.

    A descriptor is `process:fd`, with the process that owns the descriptor table. `size` is the return value:
    the bytes moved. Failed calls and calls without a descriptor make no record.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._processes = ProcessTables()
        self._begun: OrderedDict[int, _Begun] = OrderedDict()

    def parse(self, line: str) -> Sequence[TraceRecord] | None:
        """The records of the call that ends in this line; None for a line of another format."""
        found = _HEAD.fullmatch(line)
        if found is None:
            return () if not line.strip() or line.startswith(_OF_STRACE) else None
        at_ns = time_ns(found[3])
        if at_ns is None:
            return None
        pid, text = int(found[1] or found[2] or 0), found[4]
        if text.startswith(("---", "+++")):
            return self._event(pid, ended=text.startswith("+++"))
        if resumed := _RESUMED.match(text):
            begun = self._begun.pop(pid, None)
            if begun is None or not begun.head.startswith(resumed[1] + "("):
                return ()  # it started before the trace
            at_ns, text = begun.at_ns, begun.head + text[resumed.end() :]
        if text.endswith(_UNFINISHED):
            return self._unfinished(pid, at_ns, text.removesuffix(_UNFINISHED))
        return self._call(pid, at_ns, text)

    def _event(self, pid: int, *, ended: bool) -> Sequence[TraceRecord]:
        if ended:
            self._begun.pop(pid, None)
            self._processes.gone(pid)
        return ()

    def _unfinished(self, pid: int, at_ns: int, head: str) -> Sequence[TraceRecord] | None:
        name, bracket, arguments = head.partition("(")
        if not bracket or len(head) > _MOST_KEPT_CHARS:
            return None
        self._processes.table(pid)
        if name in CLONES:
            self._processes.clone_begins(pid, shared="CLONE_FILES" in arguments)
        if len(self._begun) >= MAX_PROCESSES:
            self._begun.popitem(last=False)
        self._begun[pid] = _Begun(at_ns, head)
        return ()

    def _call(self, pid: int, at_ns: int, text: str) -> Sequence[TraceRecord] | None:
        found = _CALL.fullmatch(text)
        if found is None:
            return None
        name, arguments, result, note = found.groups()
        table = self._processes.table(pid)
        ok = result[0] not in "-?"
        if name in CLONES:
            if ok and int(result, 0):
                self._processes.cloned(pid, int(result, 0), shared="CLONE_FILES" in arguments)
            else:
                self._processes.clone_failed(pid)
            return ()
        change = CALLS.get(name)
        if change is None or not ok:
            return ()
        moves = change(table, Call(arguments, int(result, 0), note))
        if moves is None:
            return None
        records = [
            TraceRecord(self._node, m.operation, f"{table.name}:{m.fd}", m.offset, m.size, at_ns, m.path)
            for m in moves
        ]
        return records if all(map(is_possible, records)) else None
