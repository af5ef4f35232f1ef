"""Counters per server, accumulated from the log's lines."""

from laggard_agent.collectors.lwfs.trace import BUCKETS, KINDS, Trace
from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Component, Field, FieldKind

FIELDS = (
    *(Field(f"{kind}_{bucket}", FieldKind.HISTOGRAM) for kind in KINDS for bucket in range(BUCKETS)),
    Field("queue_samples"),
    Field("queue_length_sum"),
    Field("last_trace_time_ms", FieldKind.GAUGE, "ms"),
)
MOST_SERVERS = 1024

_LATE_MS = 60_000
_SAMPLES = len(KINDS) * BUCKETS
_SUM = _SAMPLES + 1
_TIME = _SAMPLES + 2
_PLACE = {kind: place * BUCKETS for place, kind in enumerate(KINDS)}


class Servers:
    """Rows of all servers in a log. A server that logs nothing is idle: its row is unchanged.

    `late`: lines after a newer one of the same server and kind, by their UTC times; their counts would look
    like a reset and are ignored. A time more than a minute back means that the clock was set.
    """

    def __init__(self) -> None:
        self.late = 0
        self.refused = 0
        self.components: tuple[Component, ...] = ()
        self._rows: dict[str, list[int | None]] = {}
        self._times: dict[tuple[str, str], int] = {}

    def add(self, trace: Trace, *, counts_queue: bool = True) -> None:
        """Adds a line; queue lengths of lines from before the agent's start do not count."""
        row = self._row(trace.server)
        if row is None:
            self.refused += 1
            return
        if trace.time_ms is not None:
            row[_TIME] = max(row[_TIME] or 0, trace.time_ms)
        if trace.kind in _PLACE:
            if self._is_in_order(trace):
                place = _PLACE[trace.kind]
                row[place : place + BUCKETS] = trace.counts
        elif counts_queue:
            row[_SAMPLES] = (row[_SAMPLES] or 0) + 1
            row[_SUM] = (row[_SUM] or 0) + trace.counts[0]

    def _row(self, server: str) -> list[int | None] | None:
        row = self._rows.get(server)
        if row is None and len(self._rows) < MOST_SERVERS:
            row = self._rows[server] = [*[None] * _SAMPLES, 0, 0, None]
            self.components = (*self.components, _component(server))
        return row

    def rows(self) -> list[Row]:
        """One row for each of `components`."""
        return [tuple(row) for row in self._rows.values()]

    def _is_in_order(self, trace: Trace) -> bool:
        if trace.time_ms is None:
            return True
        newest = self._times.get((trace.server, trace.kind), 0)
        if newest - _LATE_MS <= trace.time_ms < newest:
            self.late += 1
            return False
        self._times[trace.server, trace.kind] = trace.time_ms
        return True


def _component(server: str) -> Component:
    """Component of a server: named in a log of several servers, otherwise the node's own."""
    if not server:
        return Component("lwfs", "lwfs")
    return Component(server, server, (("scope", "site"), ("server", server)))
