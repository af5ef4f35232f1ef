"""TCP by remote address (source `tcp_destination`): lasting counters from short-lived sockets.

The latest values of every socket are kept by the kernel's cookie and both ends; their increases are added to
the counters of the destination. A socket that is new since the previous sample counts in full. Counts between
a socket's last sample and its end are lost, and so are sockets that no sample saw.
"""

import ipaddress
import socket
from collections.abc import Sequence
from functools import lru_cache, partial

from laggard_agent.collectors.net.inet_diag import SocketDump, Values
from laggard_agent.collectors.net.parse import rise
from laggard_agent.collectors.rows import named
from laggard_common.trace_formats.kernel_text import MOST
from laggard_common.wire.codec import Row
from laggard_common.wire.limits import MAX_COMPONENTS
from laggard_common.wire.schema import Component, Field, FieldKind

MOST_SOCKETS = 16_384
_MOST_NAMES = 4 * MOST_SOCKETS
_FORGOTTEN_NS = 3600 * 1_000_000_000

# The fields of Values but the first, rtt.
_COUNTERS = (
    (Field("total_retrans", unit="segments"), 32),
    (Field("bytes_acked", unit="bytes"), 64),
    (Field("segs_out", unit="segments"), 32),
    (Field("data_segs_out", unit="segments"), 32),
    (Field("bytes_sent", unit="bytes"), 64),
    (Field("bytes_retrans", unit="bytes"), 64),
)
_BITS = tuple(bits for _, bits in _COUNTERS)
_NOTHING = (0,) * len(_COUNTERS)

DESTINATION_FIELDS = (
    Field("sockets", FieldKind.GAUGE),
    Field("rtt", FieldKind.GAUGE, "us"),
    *(field for field, _ in _COUNTERS),
)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class _Destination:
    """Counts of one address: in all and in the current sample."""

    __slots__ = ("component", "counters", "rtt", "rtts", "seen_ns", "since_ns", "sockets")

    def __init__(self, name: str, now_ns: int) -> None:
        self.component = named(name)
        self.counters = list(_NOTHING)
        self.since_ns = self.seen_ns = now_ns
        self.sockets = self.rtt = self.rtts = 0


class Destinations:
    """Counters of at most `most` destinations within `networks`, over all samples.

    A destination without a socket stays for an hour, or until its place is needed. `sockets_left_out`:
    sockets of the latest sample without a place, which are not counted. `sockets`: latest values by socket,
    of the latest sample and some that it may have missed.
    """

    def __init__(self, networks: Sequence[str], most: int) -> None:
        self.networks = [ipaddress.ip_network(text) for text in networks]
        self._most = min(most, MAX_COMPONENTS)
        self._name = lru_cache(_MOST_NAMES)(partial(destination_name, networks=self.networks))
        self._known: dict[str, _Destination] = {}
        self.sockets: dict[bytes, Values] = {}
        self._whole = False
        self._taken_ns = 0
        self._replaceable: list[str] = []
        self._left_some_out = False
        self.components: tuple[Component, ...] = ()
        self.sockets_left_out = 0

    def __len__(self) -> int:
        return len(self._known)

    def update(self, answer: SocketDump, now_ns: int) -> list[Row]:
        """Adds a sample; returns the rows of DESTINATION_FIELDS, in the order of `components`."""
        self._begin(now_ns)
        before = self.sockets
        sockets: dict[bytes, Values] = {}
        for family, ends, values in answer.sockets:
            name = self._name(family, ends[20:36])
            destination = (self._known.get(name) or self._add(name, now_ns)) if name else None
            if destination is None:
                self.sockets_left_out += bool(name)
                continue
            sockets[ends] = values
            destination.sockets += 1
            destination.seen_ns = now_ns
            if values[0]:
                destination.rtt += values[0]
                destination.rtts += 1
            last = before.get(ends)
            if last is None:
                if self._is_new(destination, now_ns):
                    _count(destination.counters, values[1:], _NOTHING)
            elif last != values:
                _count(destination.counters, values[1:], last[1:])
        # A socket missed by one sample reappears.
        keep = not answer.whole and len(before) < MOST_SOCKETS
        self.sockets = {**before, **sockets} if keep else sockets
        self._whole = answer.whole
        self._taken_ns = now_ns
        return self._make_rows(answer.known - 1)

    def _begin(self, now_ns: int) -> None:
        for name, destination in list(self._known.items()):
            if now_ns - destination.seen_ns > _FORGOTTEN_NS:
                del self._known[name]
            destination.sockets = destination.rtt = destination.rtts = 0
        idle = [d for d in self._known.values() if d.seen_ns < self._taken_ns]
        self._replaceable = [d.component.name for d in sorted(idle, key=lambda d: -d.seen_ns)]
        self._left_some_out = self.sockets_left_out > 0
        self.sockets_left_out = 0

    def _is_new(self, destination: _Destination, now_ns: int) -> bool:
        """True when a socket missing from the previous sample is new, not merely omitted there."""
        return self._whole and not (self._left_some_out and destination.since_ns == now_ns)

    def _add(self, name: str, now_ns: int) -> _Destination | None:
        """Adds a destination, replacing one without sockets if needed; None without a place."""
        while len(self._known) >= self._most:
            if not self._replaceable:
                return None
            longest = self._replaceable.pop()
            if not self._known[longest].sockets:
                del self._known[longest]
        destination = self._known[name] = _Destination(name, now_ns)
        return destination

    def _make_rows(self, known: int) -> list[Row]:
        """`known`: number of counters that this kernel has."""
        self.components = tuple(destination.component for destination in self._known.values())
        beyond = (None,) * (len(_COUNTERS) - known)
        return [
            (d.sockets, d.rtt // d.rtts if d.rtts else None, *d.counters[:known], *beyond)
            for d in self._known.values()
        ]


def destination_name(family: int, raw: bytes, networks: Sequence[Network]) -> str:
    """Remote address in the 16 bytes of a socket, empty outside `networks`.

    An IPv4-mapped IPv6 address counts as IPv4. This host (127.0.0.0/8, ::1) and the unspecified address are
    not destinations.
    """
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    if family == socket.AF_INET:
        address = ipaddress.IPv4Address(raw[:4])
    elif family == socket.AF_INET6:
        six = ipaddress.IPv6Address(raw)
        address = six.ipv4_mapped or six
    else:
        return ""
    if address.is_loopback or address.is_unspecified:
        return ""
    return str(address) if any(address in network for network in networks) else ""


def _count(counters: list[int], values: Sequence[int], before: Sequence[int]) -> None:
    for at, bits in enumerate(_BITS):
        counters[at] = (counters[at] + rise(values[at], before[at], bits)) % MOST
