"""Collector `lwfs`: latency buckets and queue lengths from the log of an LWFS forwarding server."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from laggard_agent.collectors.interface import Context, Reading
from laggard_agent.collectors.lwfs.log_tailer import Follower
from laggard_agent.collectors.lwfs.trace import FIELDS, Servers, is_trace, parse_trace
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.rows import OnceLogged, OwnRow, RowCache, gauges
from laggard_common.wire.schema import Field, FieldKind

_COUNTERS = ("traces", "lines_not_understood", "lines_late", "lines_too_long", "lines_torn", "rotations")
LOG_FIELDS = (
    *gauges("found", "servers"),
    Field("behind_bytes", FieldKind.GAUGE, "bytes"),
    *map(Field, (*_COUNTERS, "truncations")),
)


@dataclass(frozen=True, slots=True)
class LwfsSettings:
    """`[lwfs]`: the log of the forwarding server."""

    log: Path = Path("/var/log/lwfs/etc-lwfs-lwfsd.vol.log")


@register
class Lwfs:
    """Follows the log at `path`. A server that writes no line is idle, and its row is unchanged.

    `leftovers`: unparsed trace lines of the latest sample.
    """

    name = "lwfs"
    settings = LwfsSettings
    sources: ClassVar = {"lwfs": FIELDS, "lwfs_log": LOG_FIELDS}

    def __init__(self, settings: LwfsSettings, context: Context) -> None:
        self._path = settings.log
        self._now = context.now
        self._follower = Follower(settings.log, context.monotonic_ns)
        self._servers = Servers()
        self._traces = 0
        self._not_understood = 0
        self._rows = RowCache("lwfs")
        self._own = OwnRow("lwfs_log", LOG_FIELDS)
        self._nothing = OnceLogged("lwfs")
        self.leftovers: tuple[bytes, ...] = ()

    def read(self) -> Iterator[Reading]:
        """Yields the servers, then the log's own row. Raises CollectError when a file is unreadable."""
        at = self._now()
        self._take(self._follower.lines())
        failure = self._follower.failure
        rows = self._servers.rows()
        if rows:
            yield self._rows.reading(at, FIELDS, self._servers.components, rows)
        log = self._follower
        yield self._own.of(
            at,
            int(log.exists),
            len(self._servers.components),
            log.behind_bytes(),
            self._traces,
            self._not_understood + self._servers.refused,
            self._servers.late,
            log.long_lines,
            log.torn_lines,
            log.rotations,
            log.truncations,
        )
        kind = "no trace in" if self._follower.exists else "no log"
        self._nothing.update(not rows and failure is None, f"nothing found: {kind} {self._path}")
        if failure is not None:
            raise failure

    def _take(self, lines: list[bytes]) -> None:
        leftovers = []
        for line in lines:
            if is_trace(line):
                trace = parse_trace(line)
                if trace is None:
                    leftovers.append(line[:200])
                else:
                    self._traces += 1
                    self._servers.add(trace, counts_queue=not self._follower.are_old)
        self._not_understood += len(leftovers)
        self.leftovers = tuple(leftovers[:100])
