"""TCP sockets and their statistics from the kernel: netlink NETLINK_SOCK_DIAG.

Formats are those of the kernel's linux/netlink.h, linux/inet_diag.h and `struct tcp_info` in linux/tcp.h,
which only grows at its end: an older kernel's answer is shorter. No permission is needed; the answer covers
the caller's network namespace.
"""

import errno
import os
import socket
import struct
from dataclasses import dataclass

from laggard_common.errors import CollectError

NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_NLM_F_REQUEST_DUMP = 0x301
_NLM_F_DUMP_INTR = 0x10
_INET_DIAG_INFO = 2
# All states with a struct tcp_info and a peer: SYN_SENT has no answer yet, FIN_WAIT1 and later may still
# retransmit.
_STATES = sum(1 << state for state in (1, 2, 4, 5, 8, 9, 11))

_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBBxI48x")  # struct inet_diag_req_v2: family, protocol, extensions, states, id
_ATTRIBUTE = struct.Struct("=HH")  # struct nlattr: length, type
_ERROR = struct.Struct("=i")
# struct inet_diag_msg: 4 bytes, of which the first is the family; struct inet_diag_sockid; 20 bytes.
_ID_AT, _ID_BYTES = _HEADER.size + 4, 48
_FIXED_BYTES = _ID_AT + _ID_BYTES + 20
# struct tcp_info: rtt at 68, total_retrans at 100, bytes_acked at 120, segs_out at 136, data_segs_out at 156,
# bytes_sent at 200, bytes_retrans at 208.
_INFO = struct.Struct("=68xI28xI16xQ8xI16xI40xQQ")
_ENDS = (72, 104, 128, 140, 160, 208, 216)
"""End offset of each value of _INFO."""

_MOST_ERRNO = 4095  # of the kernel
_RECEIVE_BYTES = 64 * 1024  # the kernel fills at most 32 KiB at once
_TIMEOUT_SECONDS = 1.0

Values = tuple[int, ...]
"""rtt (us), total_retrans, bytes_acked, segs_out, data_segs_out, bytes_sent, bytes_retrans; 0 if unknown."""


@dataclass(slots=True)
class SocketDump:
    """The sockets of one dump, and its properties.

    `sockets`: (address family, struct inet_diag_sockid as bytes, values). `known`: number of values that this
    kernel has. `whole`: no socket is missing. `not_understood`: messages that are not sockets.
    """

    sockets: list[tuple[int, bytes, Values]]
    known: int = len(_ENDS)
    whole: bool = True
    not_understood: int = 0
    done: bool = False


class NoSuchDiagnosisError(CollectError):
    """The kernel has no INET_DIAG for TCP."""


def ask(most_sockets: int) -> SocketDump:
    """Requests all TCP sockets with a peer, IPv4 and IPv6; at most the first `most_sockets`.

    Raises NoSuchDiagnosisError, and CollectError for an invalid answer of the kernel.
    """
    answer = SocketDump([])
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as sock:
            sock.settimeout(_TIMEOUT_SECONDS)
            for family in (socket.AF_INET, socket.AF_INET6):
                sock.sendto(request(family), (0, 0))
                answer.done = False
                while not answer.done:
                    read(sock.recv(_RECEIVE_BYTES), answer, most_sockets)
                    if len(answer.sockets) >= most_sockets and not answer.whole:
                        return answer  # listing the rest would take time without use
    except OSError as exc:
        raise _refused(exc.errno, exc.strerror or str(exc)) from exc
    return answer


def request(family: int) -> bytes:
    """The request message for a dump of a family's TCP sockets."""
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), _STATES)
    head = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, family, 0)
    return head + body


def read(data: bytes, answer: SocketDump, most_sockets: int) -> None:
    """Adds the messages in `data`, the result of one receive, to `answer`.

    Accepts any bytes: malformed messages are counted, and data after a broken length is ignored; both make
    the answer incomplete. Raises as `ask` for an error reported by the kernel.
    """
    end = len(data)
    at = 0
    while at + _HEADER.size <= end:
        length, kind, flags, _, _ = _HEADER.unpack_from(data, at)
        if not _HEADER.size <= length <= end - at:
            break
        if flags & _NLM_F_DUMP_INTR:
            answer.whole = False
        if kind == _SOCK_DIAG_BY_FAMILY:
            if len(answer.sockets) >= most_sockets:
                answer.whole = False
            elif not _socket(data, at, at + length, answer):
                answer.not_understood += 1
                answer.whole = False
        elif kind in (_NLMSG_DONE, _NLMSG_ERROR):
            answer.done = True
            number = _ERROR.unpack_from(data, at + _HEADER.size)[0] if length >= _HEADER.size + 4 else 0
            if number < 0:
                number = min(-number, _MOST_ERRNO)
                raise _refused(number, os.strerror(number))
        else:
            answer.not_understood += 1
            answer.whole = False
        at += (length + 3) & ~3
    if at < end:
        answer.not_understood += 1
        answer.whole = False


def _refused(number: int | None, reason: str) -> CollectError:
    kind = NoSuchDiagnosisError if number in (errno.EPROTONOSUPPORT, errno.ENOENT) else CollectError
    return kind("netlink NETLINK_SOCK_DIAG", reason)


def _socket(data: bytes, at: int, end: int, answer: SocketDump) -> bool:
    """Adds the socket of the message from `at` to `end`; True if there was one."""
    start, info_bytes = _info(data, at + _FIXED_BYTES, end)
    if info_bytes < _ENDS[1]:
        return False
    if info_bytes >= _INFO.size:
        values = _INFO.unpack_from(data, start)
    else:
        values = _INFO.unpack(data[start : start + info_bytes].ljust(_INFO.size, b"\0"))
        answer.known = min(answer.known, sum(place <= info_bytes for place in _ENDS))
    answer.sockets.append((data[at + _HEADER.size], data[at + _ID_AT : at + _ID_AT + _ID_BYTES], values))
    return True


def _info(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Start and length of the attribute INET_DIAG_INFO between `at` and `end`; None if missing."""
    while at + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if not _ATTRIBUTE.size <= length <= end - at:
            break
        if kind == _INET_DIAG_INFO:
            return at + _ATTRIBUTE.size, length - _ATTRIBUTE.size
        at += (length + 3) & ~3
    return at, 0
