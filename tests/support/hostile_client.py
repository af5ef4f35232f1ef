"""A hostile MQTT client: bytes that a library would not send, as fast as the socket takes them."""

import os
import socket
import ssl
import time
from collections.abc import Iterator

from tests.support.wait import LIMIT_SECONDS

CHUNK_BYTES = 256 * 1024


def field(text: str) -> bytes:
    """A string as MQTT writes it."""
    data = text.encode()
    return len(data).to_bytes(2) + data


def packet(head: int, body: bytes) -> bytes:
    """One packet: the first byte, the length, the rest."""
    return _head(head, len(body)) + body


def publication(topic: str, payload: bytes) -> bytes:
    """A message of QoS 0."""
    return packet(0x30, field(topic) + payload)


def connected(port: int, name: str, context: ssl.SSLContext | None, host: str = "localhost") -> socket.socket:
    """A connection that the broker has let in. Raises OSError when it does not."""
    link = socket.create_connection((host, port), timeout=LIMIT_SECONDS)
    try:
        link = link if context is None else context.wrap_socket(link, server_hostname=host)
        link.sendall(packet(0x10, field("MQTT") + b"\x04\x02\x00\x00" + field(name)))
        if (answer := link.recv(4)) != b"\x20\x02\x00\x00":
            raise ConnectionRefusedError(f"CONNACK {answer.hex()}")
    except OSError:
        link.close()
        raise
    return link


def flood(link: socket.socket, packets: Iterator[bytes], seconds: float) -> int:
    """Sends packets for so long, or until there are none; how many."""
    deadline, sent, chunk = time.monotonic() + seconds, 0, bytearray()
    link.settimeout(seconds + LIMIT_SECONDS)
    for one in packets:
        chunk += one
        sent += 1
        if len(chunk) >= CHUNK_BYTES:
            link.sendall(chunk)
            chunk.clear()
            if time.monotonic() > deadline:
                return sent
    link.sendall(chunk)
    return sent


def monster(link: socket.socket, topic: str, size: int) -> int:
    """Sends one message of `size` bytes; how many went before the connection was ended.

    Raises TimeoutError when nobody ends it within LIMIT_SECONDS.
    """
    link.settimeout(LIMIT_SECONDS)
    sent = 0
    try:
        link.sendall(_head(0x30, size) + field(topic))
        while sent < size:
            link.sendall(bytes(CHUNK_BYTES))
            sent += CHUNK_BYTES
        while link.recv(4096):
            pass
    except TimeoutError:
        raise
    except OSError:
        pass
    return min(sent, size)


def garbage(topic: str) -> Iterator[bytes]:
    """Messages that are none, without end: random bytes of all lengths up to 400."""
    noise = os.urandom(8192)
    made = [publication(topic, noise[at : at + at * 7 % 400]) for at in range(1024)]
    while True:
        yield from made


def _head(first: int, length: int) -> bytes:
    out = bytearray([first])
    while True:
        length, low = divmod(length, 128)
        out.append(low | (0x80 if length else 0))
        if not length:
            return bytes(out)
