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

from laggard_agent.tools.iotrace.calls import CALLS, CLONES, Call
from laggard_agent.tools.iotrace.descriptors import MAX_PROCESSES, ProcessTables
from laggard_agent.tools.iotrace.reader import time_ns
from laggard_common.wire.trace_records import TraceRecord

_HEAD = re.compile(
    r"(?:\[pid +([0-9]{1,10})\] +|([0-9]{1,10}) +)?([0-9]{1,10}\.[0-9]{1,9}) +(\S.*)", re.DOTALL
)
_CALL = re.compile(r"([a-z_][a-z0-9_]*)\((.*)\) *= (-?[0-9]{1,20}|0x[0-9a-f]{1,16}|\?)(.*)", re.DOTALL)
_RESUMED = re.compile(r"<\.\.\. ([a-z_][a-z0-9_]*) resumed>")
_UNFINISHED = " <unfinished ...>"
_OF_STRACE = ("strace: ", "Process ")
_MOST_KEPT_CHARS = 8192  # of an unfinished call


class StraceParser:
    """Parses lines of strace. `node`: node name of the records, which strace lacks.

    A descriptor is `process:fd`, with the process that owns the descriptor table. `size` is the return value:
    the bytes moved. Failed calls and calls without a descriptor make no record.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._processes = ProcessTables()
        self._begun: OrderedDict[int, tuple[int, str]] = OrderedDict()  # time and head of unfinished calls

    def parse(self, line: str) -> Sequence[TraceRecord]:
        """The records of the call that ends in this line. Raises ValueError for a line of another format."""
        if not line.strip() or line.startswith(_OF_STRACE):
            return ()
        found = _HEAD.fullmatch(line)
        if found is None:
            raise ValueError(line)
        at_ns = time_ns(found[3])
        pid, text = int(found[1] or found[2] or 0), found[4]
        if text.startswith("---"):
            return ()
        if text.startswith("+++"):
            self._begun.pop(pid, None)
            self._processes.gone(pid)
            return ()
        if resumed := _RESUMED.match(text):
            at_ns, head = self._begun.pop(pid, (0, ""))
            if not head.startswith(resumed[1] + "("):
                return ()  # it started before the trace
            text = head + text[resumed.end() :]
        if text.endswith(_UNFINISHED):
            self._unfinished(pid, at_ns, text.removesuffix(_UNFINISHED))
            return ()
        return self._call(pid, at_ns, text)

    def _unfinished(self, pid: int, at_ns: int, head: str) -> None:
        name, bracket, arguments = head.partition("(")
        if not bracket or len(head) > _MOST_KEPT_CHARS:
            raise ValueError(head)
        self._processes.table(pid)
        if name in CLONES:
            self._processes.clone_begins(pid, shared="CLONE_FILES" in arguments)
        if len(self._begun) >= MAX_PROCESSES:
            self._begun.popitem(last=False)
        self._begun[pid] = at_ns, head

    def _call(self, pid: int, at_ns: int, text: str) -> Sequence[TraceRecord]:
        found = _CALL.fullmatch(text)
        if found is None:
            raise ValueError(text)
        name, arguments, result, note = found.groups()
        table = self._processes.table(pid)
        ok = result[0] not in "-?"
        if name in CLONES:
            if ok and int(result, 0):
                self._processes.cloned(pid, int(result, 0), shared="CLONE_FILES" in arguments)
            else:
                self._processes.clone_failed(pid)
            return ()
        if not ok or name not in CALLS:
            return ()
        return CALLS[name](table, Call(arguments, int(result, 0), note, self._node, at_ns))
