"""Network counters of /proc/net, and on request TCP by destination through netlink."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from laggard_agent.collectors.interface import Context, KernelFile, Now, Reading
from laggard_agent.collectors.name_filter import any_of
from laggard_agent.collectors.net.destinations import DESTINATION_FIELDS, MOST_SOCKETS, Destinations
from laggard_agent.collectors.net.inet_diag import NoSuchDiagnosisError, SocketDump, ask
from laggard_agent.collectors.net.interfaces import INTERFACE_FIELDS, parse_interfaces
from laggard_agent.collectors.net.softnet import SOFTNET_COMPONENTS, SOFTNET_FIELDS, Softnet, parse_softnet
from laggard_agent.collectors.net.tcp import TCP_COMPONENTS, TCP_FIELDS, parse_pairs, tcp_row
from laggard_agent.collectors.registry import register
from laggard_common.config import between, checked, each, network, regex
from laggard_common.errors import CollectError
from laggard_common.wire.codec import Row
from laggard_common.wire.limits import MAX_COMPONENTS, MAX_NAME_CHARS
from laggard_common.wire.schema import Component, Field, FieldKind

_log = logging.getLogger(__name__)

DIAG_FIELDS = tuple(
    Field(name, FieldKind.GAUGE)
    for name in ("available", "sockets", "destinations", "sockets_left_out", "whole", "not_understood")
)
_DIAG = (Component("inet_diag", "inet_diag"),)
_NOT_AVAILABLE: Row = (0, None, None, None, None, None)


@dataclass(frozen=True, slots=True)
class NetSettings:
    """`[net]`: regular expressions on interface names; an empty `include` means all.

    `destinations`: networks within which TCP is counted by remote address.
    """

    include: tuple[str, ...] = field(default=(), metadata=checked(each(regex())))
    exclude: tuple[str, ...] = field(
        default=("lo", "veth.*", "docker.*", "br-.*", "virbr.*", "cali.*", "tap.*", "ifb.*", "dummy.*"),
        metadata=checked(each(regex())),
    )
    destinations: tuple[str, ...] = field(default=(), metadata=checked(each(network())))
    most_destinations: int = field(default=1024, metadata=checked(between(1, MAX_COMPONENTS)))


@register
class Net:
    """Reads `<procfs>/net/dev`, `snmp`, `netstat` and `softnet_stat`; a failure of one affects no other.

    `destinations`: also counts TCP by destination. `own`: True when procfs is this host's, as netlink always
    reports this host.
    """

    name = "net"
    settings = NetSettings
    sources: ClassVar = {
        "net": INTERFACE_FIELDS,
        "tcp": TCP_FIELDS,
        "softnet": SOFTNET_FIELDS,
        "tcp_destination": DESTINATION_FIELDS,
        "inet_diag": DIAG_FIELDS,
    }

    def __init__(
        self,
        procfs: Path,
        include: Sequence[str],
        exclude: Sequence[str],
        now: Now,
        *,
        destinations: Destinations | None = None,
        own: bool = True,
        ask: Callable[[int], SocketDump] = ask,
    ) -> None:
        self._dev, self._snmp, self._netstat, self._softnet_stat = (
            KernelFile(procfs / "net" / file) for file in ("dev", "snmp", "netstat", "softnet_stat")
        )
        self._include = any_of(include)
        self._exclude = any_of(exclude)
        self._now = now
        self._destinations = destinations
        self._own = own
        self._ask = ask
        self._rows: dict[str, Row] = {}
        self._components: tuple[Component, ...] = ()
        self._tcp: Row = ()
        self._softnet = Softnet()
        self._softnet_row: Row = ()
        self._diag_row: Row = ()
        self._said = ""

    @classmethod
    def open(cls, settings: NetSettings, context: Context) -> Self:
        """As `CollectorClass`."""
        found = None
        if settings.destinations:
            found = Destinations(settings.destinations, settings.most_destinations)
        include, exclude, roots = settings.include, settings.exclude, context.roots
        return cls(roots.procfs, include, exclude, context.now, destinations=found, own=roots.own)

    def read(self) -> Iterator[Reading]:
        """Yields all sources. Raises CollectError at the end for the first that is unreadable."""
        failed: CollectError | None = None
        for part in (
            self._interfaces(),
            self._tcp_counters(),
            self._packet_processing(),
            self._by_destination(),
        ):
            try:
                yield from part
            except CollectError as exc:
                failed = failed or exc
        if failed:
            raise failed

    def _interfaces(self) -> Iterator[Reading]:
        read_at_ns = self._now()
        data = self._dev.read()
        every = parse_interfaces(data)
        if not every and not _is_head_alone(data):
            raise CollectError(str(self._dev.path), "no line has the 16 counters of an interface")
        rows = {name: _same(row, self._rows.get(name)) for name, row in every.items() if self._wanted(name)}
        if list(rows) != list(self._rows):
            self._components = tuple(Component(name, name) for name in rows)
        self._rows = rows
        yield Reading("net", INTERFACE_FIELDS, read_at_ns, self._components, list(rows.values()))

    def _tcp_counters(self) -> Iterator[Reading]:
        read_at_ns = self._now()
        values = parse_pairs(self._snmp.read())
        if not values:
            raise CollectError(str(self._snmp.path), "no Tcp lines")
        extended = parse_pairs(self._netstat.read())
        self._tcp = _same(tcp_row(values | extended), self._tcp)
        yield Reading("tcp", TCP_FIELDS, read_at_ns, TCP_COMPONENTS, [self._tcp])
        if not extended:
            raise CollectError(str(self._netstat.path), "no TcpExt lines")

    def _packet_processing(self) -> Iterator[Reading]:
        read_at_ns = self._now()
        rows = parse_softnet(self._softnet_stat.read())
        if rows is None:
            raise CollectError(str(self._softnet_stat.path), "not lines of hexadecimal numbers, one a CPU")
        self._softnet_row = _same(self._softnet.total(rows), self._softnet_row)
        yield Reading("softnet", SOFTNET_FIELDS, read_at_ns, SOFTNET_COMPONENTS, [self._softnet_row])

    def _by_destination(self) -> Iterator[Reading]:
        known = self._destinations
        if known is None:
            return
        at = self._now()
        answer = self._answer()
        row = _NOT_AVAILABLE
        if answer is not None:
            rows = known.update(answer, at)
            if rows:
                yield Reading("tcp_destination", DESTINATION_FIELDS, at, known.components, rows)
            left_out = known.sockets_left_out
            whole = int(answer.whole)
            row = (1, len(answer.sockets), len(known), left_out, whole, answer.not_understood)
        self._diag_row = _same(row, self._diag_row)
        yield Reading("inet_diag", DIAG_FIELDS, at, _DIAG, [self._diag_row])

    def _answer(self) -> SocketDump | None:
        """The kernel's answer; None on a kernel without this interface, logged once."""
        answer, why = None, "--procfs is not of the kernel that would answer"
        if self._own:
            try:
                answer, why = self._ask(MOST_SOCKETS), ""
            except NoSuchDiagnosisError as exc:
                why = f"{exc}: inet_diag and tcp_diag are not loaded"
        if why and why != self._said:
            _log.warning("collector net: no destinations found: %s", why)
        self._said = why
        return answer

    def _wanted(self, name: str) -> bool:
        if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
            return False
        if self._exclude is not None and self._exclude(name):
            return False
        return self._include is None or self._include(name)


def _is_head_alone(data: bytes) -> bool:
    """True when the text of /proc/net/dev has only its two header lines."""
    lines = data.split(b"\n")
    return b"|" in lines[0] and all(b"|" in line or not line for line in lines)


def _same(row: Row, before: Row | None) -> Row:
    return before if before == row else row
