"""What the tests of the `net` collector share: files of /proc/net, and answers of the kernel made by hand."""

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "net"

# ruff: noqa: E501
DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    3193      29    0    0    0     0          0         0     3193      29    0    0    0     0       0          0
  eth0: 161469191    4375    1    2    3     4          5         6   212262    1904    7    8    9    10      11         12
ib0:0:18446744073709551615 1 0 0 0 0 0 0 5 6 0 0 0 0 0 0
"""
SNMP = """\
Ip: Forwarding DefaultTTL
Ip: 2 64
Tcp: RtoAlgorithm MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs OutSegs RetransSegs
Tcp: 1 -1 19 2 0 0 3 4362 1884 17
Udp: InDatagrams NoPorts
Udp: 37 0
"""
NETSTAT = """\
TcpExt: SyncookiesSent TCPLostRetransmit TCPTimeouts ListenDrops
TcpExt: 0 5 6 7
IpExt: InNoRoutes
IpExt: 0
"""
SOFTNET = """\
000000b9 00000001 00000002 00000000 00000000 00000000 00000000 00000000 00000000 00000003 00000004 00000000 00000000 00000000 00000000
fffffff0 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000001 00000000 00000000
"""
FILES = {"net/dev": DEV, "net/snmp": SNMP, "net/netstat": NETSTAT, "net/softnet_stat": SOFTNET}

SOCKET_MESSAGE, DONE, ERROR = 20, 3, 2


@dataclass(slots=True)
class Socket:
    """A TCP socket as the kernel tells of it; `info_bytes`: how long this kernel's struct tcp_info is."""

    to: str
    cookie: int
    rtt: int = 100
    total_retrans: int = 0
    bytes_acked: int = 0
    segs_out: int = 0
    data_segs_out: int = 0
    bytes_sent: int = 0
    bytes_retrans: int = 0
    info_bytes: int = 248
    before: Sequence[tuple[int, bytes]] = field(default=((8, b"\0"),))
    port: int = 988

    @property
    def family(self) -> int:
        return socket.AF_INET6 if ":" in self.to else socket.AF_INET

    def message(self) -> bytes:
        """The netlink message, with `before` as the attributes that come before INET_DIAG_INFO."""
        far = socket.inet_pton(self.family, self.to).ljust(16, b"\0")
        ends = struct.pack(">HH16s16s", 40000, self.port, bytes(16), far) + struct.pack("=IQ", 0, self.cookie)
        fixed = struct.pack("=BBBB", self.family, 1, 0, 0) + ends + bytes(20)
        attributes = b"".join(attribute(kind, content) for kind, content in self.before)
        return message(SOCKET_MESSAGE, fixed + attributes + attribute(2, self.info()))

    def info(self) -> bytes:
        """struct tcp_info, cut to `info_bytes`."""
        info = bytearray(max(self.info_bytes, 248))
        struct.pack_into("=I", info, 68, self.rtt)
        struct.pack_into("=I", info, 100, self.total_retrans)
        struct.pack_into("=Q", info, 120, self.bytes_acked)
        struct.pack_into("=I", info, 136, self.segs_out)
        struct.pack_into("=I", info, 156, self.data_segs_out)
        struct.pack_into("=QQ", info, 200, self.bytes_sent, self.bytes_retrans)
        return bytes(info[: self.info_bytes])


def attribute(kind: int, content: bytes) -> bytes:
    """A netlink attribute, padded to 4 bytes."""
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def message(kind: int, body: bytes, flags: int = 2) -> bytes:
    """A netlink message, padded to 4 bytes."""
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 0, 0) + body + bytes(-len(body) % 4)


def done(error: int = 0) -> bytes:
    """The end of a dump."""
    return message(DONE, struct.pack("=i", error))
