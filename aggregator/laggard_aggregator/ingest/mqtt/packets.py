"""MQTT 3.1.1 packets of a client that subscribes at QoS 1.

Messages come from untrusted clients, so sizes are bounded. The payload of a message that is too long is
skipped as it arrives and the message is passed on empty: the broker redelivers a message that is not
acknowledged for ever. (OASIS, MQTT Version 3.1.1, sections 2 and 3.)
"""

from collections.abc import Sequence

from laggard_common.errors import MqttError
from laggard_common.wire.limits import MAX_MESSAGE_BYTES

CONNACK, SUBACK, PINGRESP = 2, 9, 13
PINGREQ = b"\xc0\x00"
DISCONNECT = b"\xe0\x00"

MAX_CONTROL_BYTES = 65_536  # of any packet that is not a message
_PUBLISH, _PUBACK = 3, 4
_MOST_TOPIC_BYTES = 2 + 65_535 + 2  # with its length, and the message's number
_MAX_PUBLISH_BYTES = MAX_MESSAGE_BYTES + _MOST_TOPIC_BYTES

Message = tuple[str, bytes, int]
"""Topic, payload, and packet identifier, which is 0 at QoS 0."""


class PacketParser:
    """Parses the broker's bytes in pieces of any size; keeps at most one incomplete packet.

    After `feed`, `published` has the packet identifiers of received PUBACKs, and `control` the kind and body
    of other packets. The caller clears both.
    """

    def __init__(self) -> None:
        self.published: list[int] = []
        self.control: list[tuple[int, bytes]] = []
        self._pieces: list[bytes] = []
        self._size = 0
        self._needed = 2
        self._skip = 0

    def feed(self, data: bytes) -> list[Message]:
        """Messages that `data` completes. Raises MqttError for bytes that are not MQTT."""
        if self._skip:
            passed = min(self._skip, len(data))
            self._skip -= passed
            data = data[passed:]
        if self._pieces:
            self._pieces.append(data)
            self._size += len(data)
            if self._size < self._needed:
                return []
            data = b"".join(self._pieces)
            self._pieces, self._size = [], 0
        messages: list[Message] = []
        end = self._packets(data, messages)
        if end < len(data):
            self._pieces, self._size = [data[end:]], len(data) - end
        return messages

    def _packets(self, data: bytes, messages: list[Message]) -> int:
        """Offset of the first incomplete packet; sets `_needed` to the bytes it needs."""
        at, size = 0, len(data)
        while size - at >= 2:
            first, length, start = data[at], data[at + 1], at + 2
            if length & 0x80:
                length, start = _long_length(data, at + 1)
                if not start:
                    self._needed = size - at + 1
                    return at
            end = start + length
            if first & 0xF0 == 0x30:
                if length > _MAX_PUBLISH_BYTES:
                    if size - start < _MOST_TOPIC_BYTES:
                        self._needed = start - at + _MOST_TOPIC_BYTES
                        return at
                    topic, _, number = _message(data, first, start, end)
                    messages.append((topic, b"", number))
                    self._skip = max(end - size, 0)
                    at = min(end, size)
                    continue
                if end > size:
                    self._needed = end - at
                    return at
                messages.append(_message(data, first, start, end))
            elif length > MAX_CONTROL_BYTES:
                raise MqttError(f"a packet of kind {first >> 4} with {length} bytes")
            elif end > size:
                self._needed = end - at
                return at
            elif first == _PUBACK << 4 and length == 2:
                self.published.append(data[start] << 8 | data[start + 1])
            else:
                self.control.append((first >> 4, data[start:end]))
            at = end
        self._needed = 2
        return at


def connect(
    identifier: str, *, clean: bool, keepalive: int, username: str | None, password: str | None
) -> bytes:
    """A CONNECT packet."""
    flags, fields = 0x02 if clean else 0, [identifier.encode()]
    if username is not None:
        flags |= 0x80
        fields.append(username.encode())
        if password is not None:
            flags |= 0x40
            fields.append(password.encode())
    body = b"\x00\x04MQTT\x04" + bytes((flags,)) + keepalive.to_bytes(2) + b"".join(map(_sized, fields))
    return _packet(0x10, body)


def subscribe(number: int, filters: Sequence[str]) -> bytes:
    """A SUBSCRIBE packet at QoS 1."""
    return _packet(
        0x82,
        number.to_bytes(2) + b"".join(_sized(topic_filter.encode()) + b"\x01" for topic_filter in filters),
    )


def publish(topic: str, payload: bytes, number: int) -> bytes:
    """A PUBLISH packet at QoS 1."""
    return _packet(0x32, _sized(topic.encode()) + number.to_bytes(2) + payload)


def acknowledge(numbers: Sequence[int]) -> bytes:
    """PUBACK packets, in the order in which the messages arrived (MQTT-4.6.0-2)."""
    return b"".join([b"\x40\x02" + number.to_bytes(2) for number in numbers])


def _message(data: bytes, first: int, start: int, end: int) -> Message:
    """The message of the PUBLISH packet in `data[start:end]`. Raises MqttError."""
    body = start + 2 + (data[start] << 8 | data[start + 1]) if end - start >= 2 else end + 1
    qos = first & 6  # shifted by one: 2 is QoS 1, and as long as its number
    if body + qos > end or qos > 2:
        raise MqttError(f"a message of {end - start} bytes with the flags {first & 15}")
    topic = data[start + 2 : body].decode(errors="replace")
    if not qos:
        return topic, data[body:end], 0
    return topic, data[body + 2 : end], data[body] << 8 | data[body + 1]


def _long_length(data: bytes, at: int) -> tuple[int, int]:
    """A length of several bytes and its end, which is 0 while it is incomplete."""
    length = 0
    for place, byte in enumerate(data[at : at + 4]):
        length |= (byte & 127) << 7 * place
        if byte < 128:
            return length, at + place + 1
    if len(data) - at >= 4:
        raise MqttError("a length of more than four bytes")
    return 0, 0


def _packet(first: int, body: bytes) -> bytes:
    length, head = len(body), bytearray((first,))
    while length > 127:
        head.append(length & 127 | 128)
        length >>= 7
    head.append(length)
    return bytes(head) + body


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(2) + data
