"""MQTT 3.1.1 packets as bytes: what a client sends, and what a broker answers (OASIS MQTT 3.1.1, 2 and 3).

QoS 0 and 1 alone. What comes in is hostile until checked: anything that is not a packet raises WireError.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from laggard_common.errors import WireError

MAX_NUMBER = 0xFFFF
REFUSED = 0x80  # a return code of SUBACK: no subscription

_MAX_REST = 268_435_455  # that four bytes of length can say
_MAX_TEXT_BYTES = 0xFFFF
_SHORT = struct.Struct(">H")
_DUPLICATE, _QOS_1, _RETAIN = 8, 2, 1
_REFUSALS = {
    1: "unacceptable protocol version",
    2: "client id rejected",
    3: "server unavailable",
    4: "bad user name or password",
    5: "not authorized",
}


class PacketType(IntEnum):
    """The upper half of a packet's first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    SUBSCRIBE = 8
    SUBACK = 9
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14


PINGREQ = bytes((PacketType.PINGREQ << 4, 0))
DISCONNECT = bytes((PacketType.DISCONNECT << 4, 0))


class Packet(NamedTuple):
    """One packet: `type` and `flags` are the halves of its first byte, `body` is what follows the length."""

    type: int
    flags: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker publishes at QoS 1, retained, when it loses the client."""

    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Message:
    """A message that somebody published. `number` is what a PUBACK names, 0 at QoS 0."""

    topic: str
    payload: bytes
    number: int
    retain: bool = False
    duplicate: bool = False


def encode_connect(
    client_id: str,
    *,
    keepalive_seconds: int,
    clean_session: bool,
    username: str | None = None,
    password: str | None = None,
    will: Will | None = None,
) -> bytes:
    """CONNECT."""
    flags = 2 * clean_session
    parts = [_text(client_id)]
    if will is not None:
        flags |= 4 | 8 | 32  # a will, at QoS 1, retained
        parts += [_text(will.topic), _binary(will.payload)]
    if username is not None:
        flags |= 128
        parts.append(_text(username))
    if password is not None:
        flags |= 64
        parts.append(_text(password))
    head = _text("MQTT") + bytes((4, flags)) + _SHORT.pack(keepalive_seconds)
    return _packet(PacketType.CONNECT << 4, head + b"".join(parts))


def encode_publish(
    topic: str, payload: bytes, number: int = 0, *, retain: bool = False, duplicate: bool = False
) -> bytes:
    """PUBLISH, at QoS 1 when it has a number."""
    flags = _QOS_1 * bool(number) | _RETAIN * retain | _DUPLICATE * duplicate
    body = _text(topic) + (_SHORT.pack(number) if number else b"") + payload
    return _packet(PacketType.PUBLISH << 4 | flags, body)


def encode_puback(number: int) -> bytes:
    """PUBACK."""
    return _packet(PacketType.PUBACK << 4, _SHORT.pack(number))


def encode_subscribe(number: int, filters: Sequence[str]) -> bytes:
    """SUBSCRIBE, at QoS 1."""
    body = _SHORT.pack(number) + b"".join(_text(one) + b"\x01" for one in filters)
    return _packet(PacketType.SUBSCRIBE << 4 | 2, body)


def decode_connack(body: bytes) -> str:
    """Why the broker refuses us; empty when it does not. Raises WireError."""
    if len(body) != 2:
        raise WireError("mqtt", f"CONNACK of {len(body)} bytes")
    return _REFUSALS.get(body[1], f"code {body[1]}") if body[1] else ""


def decode_puback(body: bytes) -> int:
    """The number of the message that the broker took. Raises WireError."""
    if len(body) != 2:
        raise WireError("mqtt", f"PUBACK of {len(body)} bytes")
    number: int = _SHORT.unpack(body)[0]
    return number


def decode_suback(body: bytes) -> tuple[int, bytes]:
    """The number of the SUBSCRIBE, and a return code for each filter. Raises WireError."""
    if len(body) < 3:
        raise WireError("mqtt", f"SUBACK of {len(body)} bytes")
    return _SHORT.unpack_from(body)[0], body[2:]


def decode_publish(flags: int, body: bytes) -> Message:
    """The message in a PUBLISH. Raises WireError."""
    qos = flags >> 1 & 3
    if qos > 1:
        raise WireError("mqtt", f"PUBLISH at QoS {qos}")
    try:
        end = 2 + _SHORT.unpack_from(body)[0]
        begin = end + 2 * qos
        number = _SHORT.unpack_from(body, end)[0] if qos else 0
        if begin > len(body):
            raise WireError("mqtt", "PUBLISH is too short")
        topic = body[2:end].decode()
    except (struct.error, UnicodeDecodeError) as exc:
        raise WireError("mqtt", f"PUBLISH: {exc}"[:200]) from exc
    if qos and not number:
        raise WireError("mqtt", "PUBLISH at QoS 1 without a number")
    return Message(topic, body[begin:], number, bool(flags & _RETAIN), bool(flags & _DUPLICATE))


class PacketReader:
    """Cuts what comes in into packets of `most_bytes` at most; holds no more than one that is not whole."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._buffer = bytearray()
        self._wanted = 2  # bytes, before it is worth looking at the buffer again

    def feed(self, data: bytes) -> list[Packet]:
        """The packets that are complete with `data`. Raises WireError: nothing after it can be understood."""
        buffer = self._buffer
        buffer += data
        packets = []
        at = 0
        while len(buffer) - at >= self._wanted:
            begin, length = self._header(at)
            if not begin:
                self._wanted = len(buffer) - at + 1
            elif len(buffer) < begin + length:
                self._wanted = begin + length - at
            else:
                first = buffer[at]
                packets.append(Packet(first >> 4, first & 15, bytes(buffer[begin : begin + length])))
                at = begin + length
                self._wanted = 2
        del buffer[:at]
        return packets

    def _header(self, at: int) -> tuple[int, int]:
        """Where the body of the packet at `at` begins, and its length; zeros while bytes are missing."""
        length = 0
        for i, byte in enumerate(self._buffer[at + 1 : at + 5]):
            length |= (byte & 127) << 7 * i
            if byte < 128:
                if length > self._most_bytes:
                    raise WireError("mqtt", f"packet of {length} bytes")
                return at + 2 + i, length
        if len(self._buffer) - at >= 5:
            raise WireError("mqtt", "length of more than four bytes")
        return 0, 0


def _packet(first: int, body: bytes) -> bytes:
    rest = len(body)
    if rest > _MAX_REST:
        raise WireError("too long", f"{rest} bytes")
    head = bytearray((first,))
    while rest > 127:
        head.append(rest & 127 | 128)
        rest >>= 7
    head.append(rest)
    return bytes(head) + body


def _text(text: str) -> bytes:
    return _binary(text.encode())


def _binary(data: bytes) -> bytes:
    if len(data) > _MAX_TEXT_BYTES:
        raise WireError("too long", f"{len(data)} bytes of a text")
    return _SHORT.pack(len(data)) + data
