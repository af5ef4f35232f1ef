"""MQTT 3.1.1 packets, as bytes, for clients by the thousand. Nothing here is checked: the broker is ours."""

PUBLISH, PUBLISH_RETAINED = 0x32, 0x33  # QoS 1


def text(value: str) -> bytes:
    """A string with its length."""
    data = value.encode()
    return len(data).to_bytes(2) + data


def packet(first: int, body: bytes) -> bytes:
    """One packet: its first byte, the length, the rest."""
    length = len(body)
    if length < 128:
        return bytes((first, length)) + body
    head = bytearray((first,))
    while length:
        head.append(length & 127 | (128 if length > 127 else 0))
        length >>= 7
    return bytes(head) + body


def connect(identifier: str, user: str, keepalive: int = 600) -> bytes:
    """A clean session."""
    body = text("MQTT") + b"\x04\x82" + keepalive.to_bytes(2) + text(identifier) + text(user)
    return packet(0x10, body)


def subscribe(number: int, topics: list[str]) -> bytes:
    """At QoS 1."""
    return packet(0x82, number.to_bytes(2) + b"".join(text(topic) + b"\x01" for topic in topics))


def publish(topic: bytes, number: int, payload: bytes, first: int = PUBLISH) -> bytes:
    """At QoS 1; `topic` as `text` makes it."""
    return packet(first, topic + number.to_bytes(2) + payload)
