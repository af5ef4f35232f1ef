"""Network counters of /proc/net, and on request TCP by destination through netlink."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from laggard_agent.collectors.interface import Context, KernelFile, Reading, choice
from laggard_agent.collectors.net import inet_diag
from laggard_agent.collectors.net.destinations import DESTINATION_FIELDS, MOST_SOCKETS, Destinations
from laggard_agent.collectors.net.inet_diag import NoSuchDiagnosisError, SocketDump
from laggard_agent.collectors.net.layers import Interfaces
from laggard_agent.collectors.net.parse import (
    INTERFACE_FIELDS,
    SOFTNET_FIELDS,
    TCP_FIELDS,
    TCP_NAMES,
    Softnet,
    odd_interfaces,
    parse_interfaces,
    parse_pairs,
    parse_softnet,
)
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.rows import OnceLogged, OwnRow, RowCache, gauges, named, raise_first
from laggard_common.config import between, checked, each, network, regex
from laggard_common.errors import CollectError
from laggard_common.wire.limits import MAX_COMPONENTS, MAX_NAME_CHARS

_LAYERS_NS = 10 * 10**9
_HEAD_LINES = 2
DIAG_FIELDS = gauges("available", "sockets", "destinations", "sockets_left_out", "whole", "not_understood")


@dataclass(frozen=True, slots=True)
class NetSettings:
    """`[net]`: regular expressions on interface names; an empty `include` means all.

    `destinations`: networks within which TCP is counted by remote address.
    """

    include: tuple[str, ...] = field(default=(), metadata=checked(each(regex)))
    exclude: tuple[str, ...] = field(
        default=("lo", "veth.*", "docker.*", "br-.*", "virbr.*", "cali.*", "tap.*", "ifb.*", "dummy.*"),
        metadata=checked(each(regex)),
    )
    destinations: tuple[str, ...] = field(default=(), metadata=checked(each(network)))
    most_destinations: int = field(default=1024, metadata=checked(between(1, MAX_COMPONENTS)))


@register
class Net:
    """Reads `<procfs>/net/dev`, `snmp`, `netstat` and `softnet_stat`; a failure of one affects no other.

    With `destinations` it also counts TCP by destination, from the answer of `ask`: by default this host's
    kernel, and none where procfs is of another host.
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
        self, settings: NetSettings, context: Context, ask: Callable[[int], SocketDump] | None = None
    ) -> None:
        self._dev, self._snmp, self._netstat, self._softnet_stat = (
            KernelFile(context.roots.procfs / "net" / file)
            for file in ("dev", "snmp", "netstat", "softnet_stat")
        )
        self._layers = Interfaces(context.roots.sysfs, choice(settings.include, settings.exclude))
        self._names: tuple[str, ...] = ()
        self._counted: frozenset[str] = frozenset()
        self._layers_until_ns = 0
        self._monotonic_ns = context.monotonic_ns
        self._now = context.now
        self._ask = ask or (inet_diag.ask if context.roots.own else None)
        self._destinations = (
            Destinations(settings.destinations, settings.most_destinations) if settings.destinations else None
        )
        self._interfaces = RowCache("net")
        self._tcp = OwnRow("tcp", TCP_FIELDS)
        self._softnet = Softnet()
        self._softnet_row = OwnRow("softnet", SOFTNET_FIELDS)
        self._by_destination = RowCache("tcp_destination")
        self._diag = OwnRow("inet_diag", DIAG_FIELDS)
        self._unanswered = OnceLogged("net")
        self._odd = {name: OnceLogged("net") for name in ("dev", "softnet_stat")}

    def read(self) -> Iterator[Reading]:
        """Yields all sources. Raises CollectError at the end for the first that is unreadable."""
        failures = []
        for part in (self._read_interfaces, self._read_tcp, self._read_softnet, self._read_destinations):
            try:
                yield from part(self._now())
            except CollectError as exc:
                failures.append(exc)
        raise_first(failures)

    def _read_interfaces(self, at_ns: int) -> Iterator[Reading]:
        data = self._dev.read()
        every = parse_interfaces(data)
        if not every and not _is_head_alone(data):
            raise CollectError(str(self._dev.path), "no line has the 16 counters of an interface")
        is_whole = data.endswith(b"\n") and data.count(b"\n") - _HEAD_LINES == len(every)
        self._odd["dev"].update_lines(() if is_whole else odd_interfaces(data), str(self._dev.path))
        counted = self._counted_now(tuple(every))
        rows = {name: row for name, row in every.items() if name in counted}
        components = tuple(map(named, rows))
        yield self._interfaces.reading(at_ns, INTERFACE_FIELDS, components, list(rows.values()))

    def _read_tcp(self, at_ns: int) -> Iterator[Reading]:
        values = parse_pairs(self._snmp.read())
        if not values:
            raise CollectError(str(self._snmp.path), "no Tcp lines")
        extended, failure = {}, None
        try:
            extended = parse_pairs(self._netstat.read())
        except CollectError as exc:
            failure = exc
        values |= extended
        yield self._tcp.of(at_ns, *map(values.get, TCP_NAMES))
        if not extended:
            raise failure or CollectError(str(self._netstat.path), "no TcpExt lines")

    def _read_softnet(self, at_ns: int) -> Iterator[Reading]:
        rows, odd = parse_softnet(self._softnet_stat.read())
        self._odd["softnet_stat"].update_lines(odd if rows else (), str(self._softnet_stat.path))
        if not rows:
            raise CollectError(str(self._softnet_stat.path), "not lines of hexadecimal numbers, one a CPU")
        yield self._softnet_row.of(at_ns, *self._softnet.total(rows))

    def _read_destinations(self, at_ns: int) -> Iterator[Reading]:
        known = self._destinations
        if known is None:
            return
        answer = self._answer()
        if answer is None:
            yield self._diag.of(at_ns, 0, *[None] * (len(DIAG_FIELDS) - 1))
            return
        rows = known.update(answer, at_ns)
        if rows:
            yield self._by_destination.reading(at_ns, DESTINATION_FIELDS, known.components, rows)
        left_out, whole = known.sockets_left_out, int(answer.whole)
        yield self._diag.of(at_ns, 1, len(answer.sockets), len(known), left_out, whole, answer.not_understood)

    def _answer(self) -> SocketDump | None:
        """The kernel's answer; None on a kernel without this interface, logged once."""
        answer, why = None, "--procfs is not of the kernel that would answer"
        if self._ask is not None:
            try:
                answer, why = self._ask(MOST_SOCKETS), ""
            except NoSuchDiagnosisError as exc:
                why = f"{exc}: inet_diag and tcp_diag are not loaded"
        self._unanswered.update(bool(why), f"no destinations found: {why}")
        return answer

    def _counted_now(self, names: tuple[str, ...]) -> frozenset[str]:
        """The interfaces that count; layers are read when a name comes or goes, and every ten seconds."""
        now_ns = self._monotonic_ns()
        if names != self._names or now_ns >= self._layers_until_ns:
            self._layers_until_ns = now_ns + _LAYERS_NS
            self._names = names
            self._counted = self._layers.counted(name for name in names if _is_name(name))
        return self._counted


def _is_name(name: str) -> bool:
    return bool(name) and len(name) <= MAX_NAME_CHARS and name.isprintable()


def _is_head_alone(data: bytes) -> bool:
    """True when the text of /proc/net/dev has only its two header lines."""
    lines = data.split(b"\n")
    return b"|" in lines[0] and all(b"|" in line or not line for line in lines)
