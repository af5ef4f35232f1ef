"""The collector `lnet`: LNet's messages, networks and peers on this node, by the kernel's files."""

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from laggard_agent.collectors.interface import ABSENT, Context, Reading, read_file
from laggard_agent.collectors.lnet.parse import (
    NI_FIELDS,
    PEER_FIELDS,
    STATS_FIELDS,
    NidTable,
    parse_nis,
    parse_peers,
    parse_stats,
)
from laggard_agent.collectors.lnet.report import HEALTH_FIELDS, parse_report
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.report_file import ReportFile
from laggard_agent.collectors.rows import OnceLogged, OwnRow, RowCache, gauges, named, raise_first
from laggard_common.config import between, checked
from laggard_common.errors import CollectError
from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Field, FieldKind

NODE_FIELDS = (
    *STATS_FIELDS,
    *gauges("nis", "nis_down", "peers", "peers_down", "peers_waiting"),
    Field("queued_bytes", FieldKind.GAUGE, "bytes"),
    Field("report_age", FieldKind.GAUGE, "s"),
    *gauges("left_out", "files_failed", "values_not_understood"),
)
PEERS_EVERY_NS = 10 * 1_000_000_000
"""A server has a line for each client, and the kernel makes each by a call of its own."""
MOST_NIS = 64
_TRIES = 3
_UP, _WAITING, _QUEUED = (
    [field.name for field in PEER_FIELDS].index(name) for name in ("up", "waiting", "queued_bytes")
)


@dataclass(frozen=True, slots=True)
class LnetSettings:
    """`[lnet]`. `max_peers`: peers with a row; the others are in the sums of the node.

    `report`: a file with the output of lnetctl, for health and statistics by NID; it may be absent.
    """

    max_peers: int = field(default=256, metadata=checked(between(0, 4096)))
    report: Path = Path("/run/lnet-report.yaml")


@register
class Lnet:
    """Reads `stats` and `nis` at each sample and `peers` every 10 s.

    They are in `<debugfs>/lnet`; in older releases in `<procfs>/sys/lnet`.
    """

    name = "lnet"
    settings = LnetSettings
    sources: ClassVar = {
        "lnet_ni": NI_FIELDS,
        "lnet_peer": PEER_FIELDS,
        "lnet_ni_health": HEALTH_FIELDS,
        "lnet_peer_health": HEALTH_FIELDS,
        "lnet": NODE_FIELDS,
    }

    def __init__(self, settings: LnetSettings, context: Context) -> None:
        roots = context.roots
        self._folders = [roots.procfs / "sys" / "lnet"]
        if roots.debugfs is not None:
            self._folders.append(roots.debugfs / "lnet")
        self._most_peers = settings.max_peers
        self._context = context
        self._peers = NidTable()
        self._peers_failed: CollectError | None = None
        self._peers_at_ns = 0
        self._ni_rows, self._peer_rows = RowCache("lnet_ni"), RowCache("lnet_peer")
        self._health_rows = RowCache("lnet_ni_health"), RowCache("lnet_peer_health")
        self._report = ReportFile(settings.report, parse_report)
        self._own = OwnRow(self.name, NODE_FIELDS)
        self._nothing, self._odd = OnceLogged(self.name), OnceLogged(self.name)

    def read(self) -> Iterator[Reading]:
        """NIs, peers, then the node's own row. Raises CollectError after all of them."""
        at = self._context.now()
        failures: list[CollectError] = []
        data = self._file("stats", failures)
        stats = None if data is None else parse_stats(data)
        nis = self._table("nis", parse_nis, failures)
        if self._context.monotonic_ns() >= self._peers_at_ns:
            self._peers_at_ns = self._context.monotonic_ns() + PEERS_EVERY_NS
            failed: list[CollectError] = []
            self._peers = self._table("peers", parse_peers, failed)
            self._peers_failed = failed[0] if failed else None
        if self._peers_failed is not None:
            failures.append(self._peers_failed)
        health, age = self._report.read(at, failures)
        odd = [*nis.odd, *self._peers.odd, *health[0].odd, *health[1].odd]
        if data is not None and stats is None:
            odd.append(data)
        yield from _reading(self._ni_rows, at, NI_FIELDS, nis, MOST_NIS)
        yield from _reading(self._peer_rows, at, PEER_FIELDS, self._peers, self._most_peers)
        limits = MOST_NIS, self._most_peers
        for rows, table, most in zip(self._health_rows, health, limits, strict=True):
            yield from _reading(rows, at, HEALTH_FIELDS, table, most)
        own = stats or (None,) * len(STATS_FIELDS)
        yield self._own.of(at, *own, *self._sums(nis, age), len(failures), len(odd))
        is_absent = data is None and not (nis.rows or nis.odd or self._peers.rows or failures)
        places = " or ".join(map(str, self._folders))
        self._nothing.update(is_absent, f"nothing found in {places}: the module lnet is not loaded")
        self._odd.update_lines(odd)
        raise_first(failures)

    def _sums(self, nis: NidTable, age: int | None) -> Row:
        """The values of NODE_FIELDS between those of `stats` and the failures."""
        peers = self._peers.rows.values()
        left_out = max(0, len(nis.rows) - MOST_NIS) + max(0, len(peers) - self._most_peers)
        return (
            len(nis.rows),
            sum(row[0] == 0 for row in nis.rows.values()),
            len(peers),
            sum(row[_UP] == 0 for row in peers),
            sum(bool(row[_WAITING]) for row in peers),
            sum(row[_QUEUED] or 0 for row in peers),
            age,
            left_out,
        )

    def _table(self, name: str, parse: Callable[[bytes], NidTable], failures: list[CollectError]) -> NidTable:
        data = self._file(name, failures)
        return NidTable() if data is None else parse(data)

    def _file(self, name: str, failures: list[CollectError]) -> bytes | None:
        """A file of LNet's; None where there is none, or it is one of `failures`.

        The kernel starts a list over (ESTALE) when a peer comes or goes while it is read.
        """
        for folder in self._folders:
            for remaining in reversed(range(_TRIES)):
                try:
                    return read_file(folder / name)
                except CollectError as exc:
                    code = exc.__cause__.errno if isinstance(exc.__cause__, OSError) else None
                    if code in ABSENT:
                        break
                    if code != errno.ESTALE or not remaining:
                        failures.append(exc)
                        return None
        return None


def _reading(
    rows: RowCache, at_ns: int, fields: tuple[Field, ...], table: NidTable, most: int
) -> Iterator[Reading]:
    """The reading of the first `most` rows of a table, none without rows."""
    chosen = list(table.rows.items())[:most]
    if chosen:
        components = tuple(named(nid) for nid, _ in chosen)
        yield rows.reading(at_ns, fields, components, [row for _, row in chosen])
