"""Columns of requests from trace records, one record at a time."""

from array import array

import numpy as np

from laggard_aggregator.layers.columns import ABSENT, OPERATIONS, Ints, NameTable, RequestColumns
from laggard_common.wire.trace_records import TraceRecord

_MOST_FD = 2**31 - 1
_MOST_NAMES = 1_000_000


class RecordColumns:
    """Gathers reads and writes. `names`: of the recording."""

    def __init__(self, names: NameTable) -> None:
        self._names = names
        self._numbers = {
            name: array("q")
            for name in ("admit", "callback", "start", "size", "done", "operation", "thread", "process", "fd")
        }
        self._space = array("q")

    def add(self, record: TraceRecord, *, process: int, fd: int, file: str, done: int | None = None) -> None:
        """Adds a request. `file`: its name, empty for none. `done`: bytes moved, if not the record's size.

        Raises ValueError beyond a million names.
        """
        r = record
        moved = r.size if done is None else done
        values = (
            r.time_ns,
            ABSENT if r.end_ns is None else r.end_ns,
            -1 if r.offset is None else r.offset,
            max(moved, 0) if r.asked is None else r.asked,
            moved,
            OPERATIONS[r.operation],
            r.thread,
            process,
            min(fd, _MOST_FD),
        )
        for column, value in zip(self._numbers.values(), values, strict=True):
            column.append(value)
        self._space.append(self._names.index(file[:4096]) if file else -1)
        if len(self._names.names) > _MOST_NAMES:
            raise ValueError(f"more than {_MOST_NAMES} names of files")

    def __len__(self) -> int:
        return len(self._space)

    def requests(self) -> RequestColumns:
        """The requests in the order of their begins."""
        count = len(self)
        columns = RequestColumns.of(
            count,
            space=np.array(self._space, np.int32),
            **{name: self._values(name) for name in self._numbers},
        )
        return columns.where(np.argsort(columns.admit, kind="stable"))

    def _values(self, name: str) -> Ints:
        return np.array(self._numbers[name], np.int64)
